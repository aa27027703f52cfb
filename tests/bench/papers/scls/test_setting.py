"""SCLS's setting: its costs are the paper's, and every contender serves every request."""

import statistics

import pytest

from bench.papers.scls.setting import CONTENDERS, LONGEST, Case, Kind, codefuse_like, profile, run_case, scls, sls
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
