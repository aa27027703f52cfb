"""The comparison of rules of rescheduling in its smallest setting."""

from bench.rescheduling import Run, main, requests_of, result_of


def test_each_rule_has_a_gain_over_none_at_each_rate(capsys):
    main(["--cases", "long answers", "--policies", "llumnix", "--rules", "promise", "--rates", "1", "--requests", "20",
          "--seeds", "1", "--jobs", "1"])  # fmt: skip
    printed = capsys.readouterr().out
    assert "promise" in printed
    assert "1/s" in printed
    assert "freeness" not in printed


def test_rules_serve_the_same_requests():
    runs = [Run("scarce memory", "llumnix", rule, 3, 0, 50) for rule in ("none", "promise")]
    assert requests_of(runs[0]) == requests_of(runs[1])
    assert all(100 <= one.num_output <= 400 for one in requests_of(runs[0]))


def test_at_a_light_load_nothing_moves_by_promise():
    assert result_of(Run("long answers", "llumnix", "promise", 0.5, 0, 8)).moves == 0.0
