"""The orders that doubling budgets are measured against."""

from engines.costs.step_cost import StepCost
from engines.scheduling.disciplines.discipline import IterationPhase, Turn
from engines.scheduling.disciplines.fcfs import FirstCome
from engines.scheduling.disciplines.mlfq import SkipJoin
from engines.scheduling.disciplines.profile import quickest_step_s
from engines.scheduling.disciplines.round_robin import RoundRobinDiscipline
from engines.scheduling.disciplines.sjf import ShortestJob
from engines.scheduling.disciplines.slo import InTurns
from mesh.wire.status import DecodeCost, PrefillCost
from tests.engines.conftest import MakeSequence
from tests.engines.scheduling.disciplines.serving import Fixed, Job, Known, ranked, request, serve


def test_first_come_first_served_whatever_the_service():
    jobs = [Job("b", 0, 5), Job("a", 1, 1), Job("b", 2, 3), Job("a", 3, 1)]
    assert serve(ranked(FirstCome(), ["a", "b"]), jobs) == [5, 6, 9, 10]


def test_shortest_job_is_that_of_the_service_with_the_shortest_mean_and_interrupts_others():
    profiles = {"a": Known(1.0), "b": Known(4.0)}
    jobs = [Job("b", 0, 3), Job("b", 0, 3), Job("a", 1, 2)]
    assert serve(ranked(ShortestJob(profiles), ["a", "b"]), jobs) == [5, 8, 3]


def queues(prefill_s: float = 0.0) -> SkipJoin:
    return SkipJoin(lambda request: prefill_s * len(request.tokens), lambda: 1.0)


def test_a_request_that_has_used_up_a_quantum_goes_to_the_end_of_the_next_queue():
    rules, requests = ranked(queues(), ["s"]), [request(name, "s") for name in "xyz"]
    for one in requests:
        rules.came(one)
    order = []
    for _ in range(9):
        first = min(requests, key=rules.rank(0.0))
        order.append(first.id)
        rules.ran("s", [first], 1.0)
    assert "".join(order) == "xyz" + "xxyyzz"  # quanta of 1, then of 2


def test_a_prompt_skips_the_queues_whose_quanta_it_does_not_fit_into(make_sequence: MakeSequence):
    rules = ranked(queues(0.5), ["tiny"])
    long, short = make_sequence("long", 20), make_sequence("short", 2)
    rules.came(long)
    rules.came(short)
    ranks = [rules.rank(0.0)(one)[2] for one in (long, short)]
    assert ranks == [4, 0]  # 16 is the first quantum of 10 and more
    rules.ran("tiny", [long], 15.0)
    assert rules.rank(0.0)(long)[2] == 4
    rules.ran("tiny", [long], 1.0)
    assert rules.rank(0.0)(long)[2] == 5


def test_the_first_quantum_is_the_quickest_decode_step_of_all_services():
    slow = StepCost(PrefillCost(0.0, 1.0), DecodeCost(1.0, 1.0))
    assert quickest_step_s({"slow": Fixed(slow), "fast": Fixed()}) == quickest_step_s({"fast": Fixed()}) < 2.0


def test_round_robin_gives_each_service_and_phase_a_turn():
    rules = RoundRobinDiscipline(["a", "b"])
    given = []
    for _ in range(8):
        turn = next(rules.turns(0.0))
        given.append(turn)
        rules.ran(turn.service, [], 1.0)
    assert given[:4] == given[4:]
    assert set(given) == {Turn(service, phase) for service in "ab" for phase in IterationPhase}


def test_a_turn_that_had_nothing_to_compute_is_not_counted_as_given():
    rules = RoundRobinDiscipline(["a", "b"])
    turns = rules.turns(0.0)
    empty, taken = next(turns), next(turns)
    rules.ran(taken.service, [], 1.0)
    assert next(rules.turns(0.0)) == empty
    assert list(rules.turns(0.0))[-1] == taken


def test_services_that_come_and_go_get_turns_while_they_are_here():
    for rules in (InTurns(services := ["a", "b"]), RoundRobinDiscipline(services)):
        list(rules.turns(0.0))
        services[:] = ["b", "c"]
        assert {turn.service for turn in rules.turns(0.0)} == {"b", "c"}


def test_by_promises_services_take_turns_with_both_phases():
    rules = InTurns(["a", "b"])
    assert list(rules.turns(0.0)) == [Turn("a"), Turn("b")]
    rules.ran("a", [], 1.0)
    assert list(rules.turns(0.0)) == [Turn("b"), Turn("a")]
