"""Llumnix's auto-scaling, in small."""

import pytest

from bench.papers.llumnix.scaling import Case, Outcome, engines_at, run_case, savings
from bench.papers.llumnix.setting import LLUMNIX, Load


def test_a_higher_bound_takes_more_engines():
    few, many = (run_case(Case(LLUMNIX, Load("M-M", 8.0), low, 12.0, 0)) for low in (1.0, 5000.0))
    assert few.engines + 1 < many.engines
    assert many.ttft_mean <= few.ttft_mean


def test_engines_between_two_outcomes():
    outcomes = [Outcome(8.0, 0.1, 1.0), Outcome(4.0, 1.0, 100.0)]
    assert engines_at(outcomes, 10.0) == pytest.approx(6.0)
    assert engines_at(outcomes, 0.5) is None
    assert savings([Outcome(8.0, 0.5, 10.0), Outcome(9.0, 0.1, 0.1)], outcomes) == [(10.0, pytest.approx(0.25))]
