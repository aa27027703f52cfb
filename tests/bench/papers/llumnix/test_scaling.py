"""Llumnix's auto-scaling: engines beside tails, and the engines of both at equal tails."""

from dataclasses import replace

from bench.papers.llumnix import scaling
from bench.papers.llumnix.scaling import MOVING, Scaled, ScaledCase, at_equal_bounds, equal_tails, run_scaled
from bench.papers.llumnix.setting import INFAAS, LLUMNIX, Case


def points(contender, *pairs):
    """Pairs of engines and P99, each of another bound."""
    load = Case("L-L", 2.0, contender, 0, 100)
    return {ScaledCase(load, float(low)): Scaled(engines, (0.1, p99), 2) for low, (engines, p99) in enumerate(pairs)}


def test_engines_are_compared_at_tails_that_both_reach():
    found = points(INFAAS, (12.0, 1.0), (8.0, 3.0)) | points(LLUMNIX, (8.0, 0.5), (6.0, 2.0))
    assert equal_tails(found) == [("1.00", "12.00", "7.33", "39 %"), ("2.00", "10.00", "6.00", "40 %")]
    assert equal_tails(points(INFAAS, (12.0, 9.0), (8.0, 30.0)) | points(LLUMNIX, (8.0, 0.5), (6.0, 2.0))) == []


def test_rescheduling_is_compared_at_equal_bounds():
    found = points(INFAAS, (12.0, 1.0), (8.0, 3.0)) | points(LLUMNIX, (9.0, 0.5), (6.0, 2.0))
    assert list(at_equal_bounds(found)) == [("0", "infaas", "0.75", "2.0"), ("1", "infaas", "0.75", "1.5")]


def test_an_engine_that_ends_keeps_its_requests_unless_they_may_move():
    """So it is in use for longer."""
    load = Case("M-M", 6.0, INFAAS, 0, 120, num_engines=12, coasts=True)
    kept, moved = (run_scaled(ScaledCase(replace(load, contender=one), 20.0)) for one in (INFAAS, MOVING))
    assert kept.engines > moved.engines


def test_more_engines_run_where_freeness_is_to_be_higher():
    load = Case("M-M", 6.0, LLUMNIX, 0, 120, num_engines=12, coasts=True)
    few, many = (run_scaled(ScaledCase(load, low)) for low in (1.0, 300.0))
    assert few.engines < many.engines <= 12
    assert many.num_changes > 0


def test_the_command_tells_where_curves_do_not_meet(tmp_path, capsys):
    asked = ["--lengths", "M-M", "--rate", "4", "--requests", "30", "--low", "20", "--engines", "4", "--coast"]
    scaling.main([*asked, "--jobs", "1", "--out", str(tmp_path)])
    assert "no P99 that both reach" in capsys.readouterr().out
