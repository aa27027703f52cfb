"""The orders that doubling budgets are measured against, and whom those that come now wait for."""

from math import inf

from engines.costs.step_cost import StepCost
from engines.engine_request import EngineRequest
from engines.scheduling.disciplines.discipline import Discipline, IterationPhase, Turn
from engines.scheduling.disciplines.fcfs import FirstCome
from engines.scheduling.disciplines.mlfq import SkipJoin
from engines.scheduling.disciplines.profile import quickest_step_s
from engines.scheduling.disciplines.round_robin import RoundRobinDiscipline
from engines.scheduling.disciplines.sjf import ShortestJob
from engines.scheduling.disciplines.slo import InTurns
from mesh.wire.status import DecodeCost, PrefillCost
from tests.engines.conftest import MakeSequence
from tests.engines.scheduling.disciplines.serving import Fixed, Job, Known, doubling, ranked, request, serve


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


# --- who goes before one that comes now


def waits(rules: Discipline, service: str, *here: EngineRequest) -> list[float]:
    """For how long each of those that are here goes before it."""
    for one in here:
        rules.came(one)
    seconds = rules.goes_before(service, 10.0)
    assert seconds is not None
    return [seconds(one) for one in here]


def test_whoever_came_goes_before_unless_the_newcomer_joins_its_batch(make_sequence: MakeSequence):
    here = request("decodes", "tiny"), request("elsewhere", "b"), make_sequence("prompt", 20)
    assert waits(ranked(FirstCome(), ["tiny", "b"], is_strict=False), "b", *here) == [inf, 0.0, 0.0]
    assert waits(ranked(FirstCome(), ["tiny", "b"]), "tiny", *here) == [inf, inf, inf]


def test_a_newcomer_comes_in_the_turn_of_those_of_its_service_that_are_here(make_sequence: MakeSequence):
    here = request("decodes", "tiny"), request("elsewhere", "b"), make_sequence("prompt", 20)
    assert waits(ranked(FirstCome(), ["tiny", "b"], is_strict=False), "tiny", *here) == [0.0, 0.0, inf]


def test_a_newcomer_is_as_urgent_as_the_last_one_of_its_service():
    here = request("other", "b"), request("urgent", "a", priority=1)
    assert waits(ranked(FirstCome(), ["a", "b"], is_strict=False), "a", *here) == [0.0, 0.0]
    assert waits(ranked(FirstCome(), ["a", "b"], is_strict=False), "b", *here) == [0.0, inf]


def test_a_shorter_service_goes_before_a_longer_one():
    profiles = {"a": Known(1.0), "b": Known(4.0)}
    here = request("short", "a"), request("long", "b")
    assert waits(ranked(ShortestJob(profiles), ["a", "b"], is_strict=False), "b", *here) == [inf, 0.0]
    assert waits(ranked(ShortestJob(profiles), ["a", "b"], is_strict=False), "a", *here) == [0.0, 0.0]


def test_a_request_goes_before_until_its_budget_is_used_up():
    profiles = {"a": Known(1.0), "b": Known(4.0)}
    rules, here = doubling(profiles, is_strict=False), request("runs", "a")
    rules.came(here)
    rules.ran("a", [here], 0.25)
    seconds = rules.goes_before("b", 0.0)
    assert seconds is not None
    assert seconds(here) == 0.75


def test_a_newcomer_joins_the_queue_of_the_last_one_of_its_service(make_sequence: MakeSequence):
    rules = ranked(queues(0.5), ["tiny", "b"], is_strict=False)
    long, other = make_sequence("long", 20), request("other", "b")
    assert waits(rules, "tiny", long, other) == [16.0 * 2 - 16.0, 1.0]
    assert waits(ranked(queues(0.5), ["tiny", "b"], is_strict=False), "b", other) == [0.0]


def test_services_that_take_turns_wait_for_no_decodes(make_sequence: MakeSequence):
    here = request("decodes", "tiny"), request("elsewhere", "b"), make_sequence("prompt", 20)
    assert waits(RoundRobinDiscipline(["tiny", "b"]), "tiny", *here) == [0.0, 0.0, inf]
    assert InTurns(["tiny"]).goes_before("tiny", 0.0) is None
