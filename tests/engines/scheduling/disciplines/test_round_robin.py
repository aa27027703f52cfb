"""Services and phases take turns; within a turn, the first come is served first."""

from math import inf

from engines.scheduling.disciplines.discipline import IterationPhase, Turn
from engines.scheduling.disciplines.round_robin import RoundRobinDiscipline
from tests.engines.conftest import MakeSequence

PREFILL, DECODE = IterationPhase.PREFILL, IterationPhase.DECODE


def given(discipline: RoundRobinDiscipline, number: int) -> Turn:
    """Take the turn with that number: those before it have nothing to compute."""
    turns = discipline.turns(0.0)
    for _ in range(number):
        next(turns)
    return next(turns)


def test_each_service_and_phase_has_one_turn():
    turns = list(RoundRobinDiscipline(["a", "b"]).turns(0.0))
    assert sorted(turns) == sorted(Turn(service, phase) for service in "ab" for phase in (PREFILL, DECODE))


def test_who_ran_goes_to_the_end():
    discipline = RoundRobinDiscipline(["a", "b"])
    order = list(discipline.turns(0.0))
    turn = given(discipline, 1)
    discipline.ran(turn.service, (), 0.1)
    assert list(discipline.turns(0.0)) == [order[0], order[2], order[3], order[1]]


def test_a_turn_that_somebody_else_took_stays_where_it_is():
    discipline = RoundRobinDiscipline(["a", "b"])
    order = list(discipline.turns(0.0))
    other = "b" if given(discipline, 0).service == "a" else "a"
    discipline.ran(other, (), 0.1)
    assert list(discipline.turns(0.0)) == order


def test_a_service_that_leaves_loses_its_turns_and_one_that_comes_is_last():
    services = ["a", "b"]
    discipline = RoundRobinDiscipline(services)
    list(discipline.turns(0.0))
    services[:] = ["b", "c"]
    assert [turn.service for turn in discipline.turns(0.0)] == ["b", "b", "c", "c"]


def test_within_a_turn_priority_comes_first_and_then_arrival(make_sequence: MakeSequence):
    late, early = make_sequence("late", arrived_at=2.0), make_sequence("early", arrived_at=1.0)
    urgent = make_sequence("urgent", arrived_at=3.0, priority=1)
    discipline = RoundRobinDiscipline(["tiny"])
    assert list(discipline.prompts("tiny", [late, early, urgent], 5.0)) == [urgent, early, late]


def test_before_a_newcomer_go_the_prompts_of_its_service_and_as_many_of_others_as_have_turns(
    make_sequence: MakeSequence,
):
    discipline = RoundRobinDiscipline(["tiny", "other"])
    own = make_sequence("own")
    others = [make_sequence(f"r{number}", service="other", arrived_at=3.0 - number) for number in range(3)]
    for request in (own, *others):
        discipline.came(request)
    assert [discipline.goes_before("tiny", 0.0)(request) for request in (own, *others)] == [inf, 0.0, inf, inf]
    assert [discipline.goes_before("other", 0.0)(request) for request in (own, *others)] == [inf] * 4
    discipline.ended(own)
    assert [discipline.goes_before("tiny", 0.0)(request) for request in others] == [0.0, 0.0, inf]
