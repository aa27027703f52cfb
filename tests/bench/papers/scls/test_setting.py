"""SCLS's setting: its costs are the paper's, and every contender serves every request."""

import statistics

import pytest

from bench.papers.scls import __main__ as command
from bench.papers.scls.setting import (
    CONTENDERS,
    LONGEST,
    Case,
    Kind,
    codefuse_like,
    ils,
    parts,
    profile,
    run_case,
    scls,
    sls,
)
from engines.scheduling.slices.estimates import SliceEstimator

SHORT = {"rate": 6.0, "seconds": 4.0, "seed": 1, "num_workers": 2}


def test_transformers_take_as_long_as_the_paper_says():
    """Its figure 11: 15 inputs of 10 tokens and one of 1024, in one batch and in two."""
    known = profile(Kind.HF)
    estimator = SliceEstimator(known.prefill, known.decode, 10**6, 128)
    assert estimator.serving_s(16, 1024) == pytest.approx(13.5, rel=0.02)
    assert estimator.serving_s(15, 10) + estimator.serving_s(1, 1024) == pytest.approx(7.6, rel=0.02)


def test_lengths_are_as_the_paper_describes_them():
    answers = sorted(request.num_output for request in codefuse_like())
    assert max(answers) == max(request.num_input for request in codefuse_like()) == LONGEST
    assert statistics.median(answers) == 150
    assert sum(answer > 512 for answer in answers) / len(answers) == pytest.approx(0.05, abs=0.001)


@pytest.mark.parametrize("kind", Kind)
def test_every_contender_serves_all_requests(kind):
    results = {each.name: run_case(Case(kind, each, **SHORT)) for each in CONTENDERS[kind]}
    assert len({result.num_requests for result in results.values()}) == 1
    assert results["SLS"].slices == 1.0 < results["SCLS"].slices


def test_a_run_does_not_depend_on_what_ran_before():
    case = Case(Kind.DS, scls(Kind.DS), **SHORT)
    first = run_case(case)
    run_case(Case(Kind.DS, sls(Kind.DS), **SHORT))
    assert run_case(case) == first


def test_few_slices_of_full_engines_return_early():
    """The paper says below 1 %; with nobody left who waits, the last slices are short of requests."""
    full = run_case(Case(Kind.DS, scls(Kind.DS), 30.0, 10.0, num_workers=2))
    assert full.early < 0.1
    short = run_case(Case(Kind.DS, scls(Kind.DS, slice_tokens=LONGEST), 30.0, 10.0, num_workers=2))
    assert short.early > 0.5
    assert run_case(Case(Kind.DS, sls(Kind.DS), **SHORT)).early == 0.0


def test_fewer_requests_at_a_time_make_continuous_batching_slower():
    few, many = (run_case(Case(Kind.DS, ils(number), 12.0, 10.0, num_workers=2)) for number in (2, None))
    assert few.throughput < many.throughput
    assert few.mean_s > 2 * many.mean_s


def test_parts_end_with_all_of_them():
    assert [one.name.partition(":")[0] for one in parts(Kind.HF)] == ["SLS", "SO", "PM", "AB", "LB", "SCLS"]
    assert parts(Kind.DS)[-1] == scls(Kind.DS)


def test_the_command_compares_seeds_in_pairs_and_does_nothing_twice(tmp_path, capsys, monkeypatch):
    asked = ["--ask", "limits", "--rates", "4", "--seconds", "3", "--seeds", "2", "--jobs", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(command, "LIMITS", (8,))
    command.main(asked)
    said = capsys.readouterr().out
    assert "ILS, 8 at a time" in said
    assert "+61.6 to +171" in said
    monkeypatch.setattr("bench.papers.scls.setting.make_simulation", None)
    command.main(asked)
    assert "4 of them done before" in capsys.readouterr().out
    assert '"commit"' in (tmp_path / "slices.json").read_text()
