"""Questions and their answers, scored by arithmetic."""

from dataclasses import replace as changed

import pytest
from msgspec.structs import replace

from mesh.topology.schema import PolicySpec, Slo
from mesh.wire.status import ServiceTally
from router.placement.change.obstacles import Obstacles
from router.placement.change.replacement import Verdict, risk_of
from router.placement.observe.conduct import Conduct
from router.placement.observe.running_mesh import present_plan
from router.placement.observe.service_monitor import Observed
from router.placement.observe.shifts import Shifts
from router.placement.search.chance import num_samples
from router.placement.search.question import NUM_OTHERS, answer, make_question
from tests.router.cluster import M0, make_status
from tests.router.placement.worlds import Fluid

SPAN_S = 10.0
CONDUCT = Conduct(PolicySpec("join_shortest_queue"))


class Counting:
    """Evaluators by arithmetic. ``num_plans``: scored by all of them."""

    def __init__(self):
        self.made = []

    def evaluator(self, catalogue, traffic, slos, conduct):
        self.made.append(Fluid(traffic))
        return self.made[-1]

    def close(self):
        pass

    @property
    def num_plans(self):
        return sum(one.num_plans for one in self.made)


def question(held, **rates):
    engines = {name: replace(make_status(M0, services=services), num_devices=1) for name, services in held.items()}
    counts = {name: round(rate * SPAN_S) for name, rate in rates.items()}
    tallies = {name: ServiceTally(name, n, 10 * n, 100 * n, n, 0, n, 5 * n, 25 * n, 1.0) for name, n in counts.items()}
    slos = dict.fromkeys(rates, Slo(1.0, 0.1))
    return make_question(1, present_plan(engines), engines.values(), Observed(SPAN_S, tallies), slos, CONDUCT)


def asked(held, **rates):
    evaluators = Counting()
    return answer(question(held, **rates), evaluators, lambda done: done >= 20).proposal, evaluators


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_nothing_is_searched_for_where_no_plan_could_be_worth_a_change(rate):
    proposal, evaluators = asked({"e0": ["a"], "e1": ["b"]}, a=rate, b=rate)
    assert proposal.verdict is Verdict.ENOUGH
    assert (proposal.wanted, proposal.num_loads) == (proposal.present, 0)
    assert evaluators.num_plans == 1


def test_late_requests_and_slow_ones_are_reasons_to_search():
    late, evaluators = asked({"e0": ["a"], "e1": ["a"], "e2": ["b"]}, a=1.0, b=8.0)
    assert late.verdict is Verdict.REPLACE
    assert evaluators.num_plans > 10
    slow, _ = asked({"e0": ["a"], "e1": ["b"], "e2": []}, a=4.5, b=0.1)
    assert slow.verdict is not Verdict.ENOUGH


def test_the_same_traffic_is_scored_once():
    """With so many requests, plans are judged on what they are found with."""
    _, evaluators = asked({"e0": ["a"], "e1": ["a"], "e2": ["b"]}, a=4.0, b=24.0)
    assert len(evaluators.made) == 1 + num_samples(risk_of(1)), "one for all, and one for each other sample"


def test_a_queue_that_is_long_is_no_longer_in_samples_than_they_are():
    """Or no search would be over in time when it is needed most."""
    asked_for = question({"e0": ["a"], "e1": ["b"]}, a=4.0, b=4.0)
    asked_for = changed(asked_for, asked=asked_for.asked.with_waiting({"a": 100_000}))
    for sample in (asked_for.drawn(), asked_for.drawn(600), *asked_for.samples()):
        come = sum(len(one.requests) for one in sample.services.values())
        assert sample.services["a"].num_waiting == come
        assert sample.services["b"].num_waiting == 0


def test_what_cannot_be_had_is_told_if_it_would_be_worth_it_and_what_can_be_is_not():
    """Of three engines, the one that could help has no room; with room for one copy more, it does."""
    asked_for = question({"e0": ["a"], "e1": ["a"], "e2": ["b"]}, a=1.0, b=9.0)
    engines = {"e0", "e1", "e2"}
    for limit, verdict in ((1, Verdict.OBSTRUCTED), (2, Verdict.REPLACE)):
        obstacles = Obstacles({"a": 1, "b": 1}, dict.fromkeys(engines, limit))
        proposal = answer(changed(asked_for, obstacles=obstacles), Counting(), lambda done: done >= 20).proposal
        assert proposal.verdict is verdict
        assert (proposal.obstacle is None) == (verdict is Verdict.REPLACE)


def test_a_change_must_pay_for_the_loads_that_are_likely_to_come_too():
    """Now everybody asks for b, and over all it is a."""
    asked_for = question({"e0": ["a"], "e1": ["a"], "e2": ["b"]}, a=1.0, b=8.0)
    asked_for = changed(asked_for, catalogue=changed(asked_for.catalogue, max_sharing=1))
    verdicts = {}
    for stays in (1.0, 0.9, 0.2):
        lasting = changed(asked_for, shifts=Shifts(stays, {"a": 8.0, "b": 1.0}))
        verdicts[stays] = answer(lasting, Counting(), lambda done: done >= 20).proposal.verdict
    assert verdicts == {1.0: Verdict.REPLACE, 0.9: Verdict.REPLACE, 0.2: Verdict.PASSING}


def test_other_loads_are_drawn_only_if_any_may_come():
    asked_for = question({"e0": ["a"], "e1": ["b"]}, a=1.0, b=8.0)
    assert list(asked_for.others()) == []
    lasting = changed(asked_for, shifts=Shifts(0.5, {"a": 8.0, "b": 1.0}))
    rates = [(other.rate("a"), other.rate("b")) for other in lasting.others()]
    assert len(rates) == NUM_OTHERS
    assert sum(a for a, _ in rates) / len(rates) == pytest.approx(8.0, rel=0.2)
