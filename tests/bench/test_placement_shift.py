"""Plans under constant and under shifting load: replaced when it pays, and only then. Scored by arithmetic."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

from bench import placement_mesh as mesh
from bench import placement_setting as setting
from bench.placement_shift import Case, Mode
from bench.placement_shift_plot import plot_runs
from router.placement.interval import Threshold
from router.placement.replacement import Verdict, judge
from router.placement.search import search
from router.placement.traffic import ServiceTraffic, Traffic
from tests.router.placement.worlds import Fluid, catalogue, cluster

NAMES = ("a", "b", "c")
SERVICES = catalogue(dict.fromkeys(NAMES, 60.0))
INTERVAL_S = 60.0


class Step(NamedTuple):
    """An interval: what its plan brought, what the best plan for it would have, and what was decided at its end."""

    achieved: float
    within_reach: float
    verdict: Verdict


def shifting(rate: float, num_intervals: int, shift_at: int, seed: int) -> list[Traffic]:
    """One more than intervals. From ``shift_at`` on, services change their rates with each other."""
    before = setting.traffic(list(NAMES), rate, INTERVAL_S, Random(f"{seed}/rates"))
    by_rate = sorted(NAMES, key=before.rate)
    partner = dict(zip(by_rate, reversed(by_rate), strict=True))
    traffics = []
    for number in range(num_intervals + 1):
        has_shifted = 0 < shift_at <= number
        rates = {name: before.rate(partner[name] if has_shifted else name) for name in NAMES}
        random = Random(f"{seed}/{number}")
        drawn = {
            name: ServiceTraffic(rates[name], asked.num_input, asked.num_output).arrivals(INTERVAL_S, random)
            for name, asked in before.services.items()
        }
        traffics.append(Traffic.recorded(drawn, INTERVAL_S))
    return traffics


def play(traffics: list[Traffic], seed: int) -> Iterator[Step]:
    """The first traffic is that of before the first interval: the first plan is made for it."""

    def found_for(traffic, random, present=None):
        return search(cluster(6), SERVICES, traffic, Fluid(traffic), random, lambda done: done >= 6, present)

    plan = found_for(traffics[0], Random(seed)).best.plan
    for number, traffic in enumerate(traffics[1:], 1):
        [achieved] = Fluid(traffic).exact([plan])
        best = found_for(traffic, Random(f"{seed}/{number}"), plan).best
        proposal = judge(plan, best.plan, traffic, Threshold(), Fluid, seed + number)
        yield Step(achieved.attainment, best.score.attainment, proposal.verdict)
        if proposal.verdict is Verdict.REPLACE:
            plan = proposal.plan


def fluid(seed, shift_at, num_intervals=20, rate=22.0):
    """Six devices of five requests a second each, so that each service needs its part of them."""
    return list(play(shifting(rate, num_intervals, shift_at, seed), seed))


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


def test_a_run_of_the_bench_tells_what_was_decided_and_what_became_of_requests(tmp_path):
    pytest.importorskip("matplotlib")
    run = Case(Mode.FIXED, rate=0.3, num_intervals=2, has_shift=False, num_batches=0, seed=0).run()
    assert run.outcomes == {"finished": len(run.served)}
    assert [told.decision.interval for told in run.decisions] == [1]
    assert run.changes == []
    assert run.attainment(0.0, run.end_s) == 1.0
    assert plot_runs(tmp_path / "plot.png", [run]).stat().st_size > 0


def test_loads_that_shift_keep_their_sum():
    load = mesh.Load(2.0, 2000.0, seed=1, shift_at_s=1000.0)
    trace = load.trace()
    for service, before in (("s0", 1.2), ("s1", 0.2)):
        times = [request.at_s for request in trace if request.service == service]
        assert sum(at_s < 1000.0 for at_s in times) / 1000.0 == pytest.approx(before, abs=0.1)
        assert sum(at_s >= 1000.0 for at_s in times) / 1000.0 == pytest.approx(1.4 - before, abs=0.1)
    assert len(trace) / 2000.0 == pytest.approx(2.0, abs=0.1)
