"""Plans under constant and under shifting load: replaced when it pays, and only then."""

import pytest

from bench import placement_setting as setting
from bench.placement_shift import play, shifting
from bench.simulation.placing import Simulated
from router.placement.replacement import Verdict
from tests.router.placement.worlds import Fluid, catalogue, cluster

NAMES = ("a", "b", "c")
SERVICES = catalogue(dict.fromkeys(NAMES, 60.0))
INTERVAL_S = 60.0


def fluid(seed, shift_at, num_intervals=20, rate=22.0):
    """Six devices of five requests a second each, so that each service needs its part of them."""
    traffics = shifting(NAMES, rate, INTERVAL_S, num_intervals, shift_at, seed)
    return list(play(traffics, cluster(6), SERVICES, Fluid, lambda done: done >= 6, seed))


@pytest.mark.parametrize("seed", range(20))
def test_nothing_changes_at_constant_load(seed):
    steps = fluid(seed, shift_at=0)
    assert [step.verdict for step in steps if step.verdict is Verdict.REPLACE] == []


@pytest.mark.parametrize("seed", range(20))
def test_attainment_is_back_within_two_intervals_of_a_shift(seed):
    steps = fluid(seed, shift_at=5, num_intervals=10)
    assert sum(step.verdict is Verdict.REPLACE for step in steps) <= 2
    for step in steps[6:]:
        assert step.achieved > step.within_reach - 0.06


def test_a_shift_is_felt_and_answered():
    """Or the test above would be of nothing."""
    felt = [fluid(seed, shift_at=5, num_intervals=8) for seed in range(5)]
    assert all(steps[4].achieved < steps[4].within_reach - 0.05 for steps in felt)
    assert all(steps[4].verdict is Verdict.REPLACE for steps in felt)


def test_a_shift_on_the_simulator():
    models = setting.services(2, ("llama2-7b",))
    known, slos = setting.catalogue(models), dict.fromkeys(models, setting.SLO)
    traffics = shifting(list(models), 6.0, 8.0, 3, 2, seed=1)

    def evaluator_for(traffic):
        return Simulated(known, traffic, slos, slo_factor=setting.SLO_FACTOR)

    steps = list(play(traffics, setting.cluster(2), known, evaluator_for, lambda done: done >= 1, 1))
    assert len(steps) == 3
    assert all(step.achieved <= step.within_reach + 0.05 for step in steps)
