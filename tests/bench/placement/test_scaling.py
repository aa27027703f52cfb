"""Engines that come and go in the simulator, and what the bench of scaling makes of it."""

from itertools import pairwise

import pytest

from bench.placement.scaling import (
    FIXED,
    WINDOW_S,
    Case,
    Day,
    least_engines,
    made_up_day,
    make_topology,
    run_case,
    simulate,
)
from mesh.rules import ScalingRule
from mesh.topology.schema import PolicySpec, ScalingSpec
from router.policies.packing import Packing

RISING = Day((2.0, 2.0, 8.0, 8.0, 8.0, 1.0, 1.0, 1.0))


def test_engines_follow_the_load_and_no_request_is_lost():
    requests = list(RISING.requests(seed=0))
    result = simulate(make_topology(8, ScalingSpec(down_after_s=20.0), 1), requests, RISING.seconds, seed=0)
    assert result.num_requests == len(requests)
    assert result.attainment > 0.85
    assert result.num_changes >= 4
    assert 1.5 * RISING.seconds < result.engine_s < 5 * RISING.seconds


def test_a_number_of_engines_is_that_many_all_day():
    result = run_case(Case(f"{FIXED} engines", Day((1.0,)), 0))
    assert (result.engine_s, result.num_changes) == (FIXED * WINDOW_S, 0)


def test_a_day_has_its_mean_and_its_requests_come_in_order():
    day = made_up_day(5.0, 1200.0)
    assert sum(day.rates) / len(day.rates) == pytest.approx(5.0)
    assert max(day.rates) > 2.5 * min(day.rates)
    requests = list(day.requests(1))
    assert len(requests) == pytest.approx(5.0 * day.seconds, rel=0.05)
    assert all(one.at_s <= other.at_s for one, other in pairwise(requests))


def test_the_least_engines_by_what_fleets_can_do():
    capacities = {1: 2.0, 2: 5.0, 4: 12.0}
    assert [least_engines(capacities, rate) for rate in (0.0, 2.0, 2.1, 8.5, 12.0, 15.6)] == [1, 1, 2, 3, 4, 6]


def test_an_engine_that_packing_asks_for_starts(monkeypatch: pytest.MonkeyPatch):
    """A rule that looks at memory alone sees no need: gateways say which engines would take what fits on none."""
    day, scaling = Day((6.0,)), ScalingSpec(rule=ScalingRule.UTILISATION, utilisation=0.95, down_after_s=30.0)
    packing = PolicySpec("packing", {"prefill": "slack"})

    def num_started() -> int:
        return simulate(make_topology(8, scaling, 1, packing), day.requests(0), day.seconds, 0).num_changes

    told = num_started()
    monkeypatch.setattr(Packing, "wanted", lambda self, waiting, view, now: ())
    assert num_started() == 0
    assert told >= 1
