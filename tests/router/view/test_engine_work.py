"""Prefills of an engine as its gateway counts them: those that it told of, and those that were sent since."""

from mesh.wire.status import UNPASSED, PendingPrefill
from router.view.engine_work import DuePrefill, Prefills, Reservation

TOLD_AT = 10.0


def sent(due_at: float, prefill_s: float | None = 0.5, priority: int = 0) -> Reservation:
    return Reservation("r", "prefill-0", "chat", 100, prefill_s, due_at, priority)


def test_prefills_go_by_priority_and_then_by_deadline():
    told = [PendingPrefill(3.0, 1.0), PendingPrefill(9.0, 2.0, priority=1)]
    prefills = Prefills(told, TOLD_AT, [sent(12.0), sent(14.0)])
    assert [(one.importance, one.due_at) for one in prefills] == [(-1, 19.0), (0, 12.0), (0, 13.0), (0, 14.0)]


def test_what_an_engine_tells_is_due_as_of_then():
    [only] = Prefills([PendingPrefill(3.0, 1.0, running_s=0.25)], TOLD_AT, [])
    assert only == DuePrefill(0, 13.0, 1.0, 0.25)


def test_what_only_decodes_there_is_no_prefill():
    prefills = Prefills([], TOLD_AT, [sent(12.0, prefill_s=None), sent(13.0)])
    assert [one.due_at for one in prefills] == [13.0]
    assert len(prefills) == 1


def test_nobody_passes_what_is_sent_to_an_engine_that_keeps_the_order():
    told = [PendingPrefill(9.0, 2.0, priority=5)]
    prefills = Prefills(told, TOLD_AT, [sent(99.0)], keeps_order=True)
    assert [one.importance for one in prefills] == [-UNPASSED, -5]


def test_prefills_are_equal_if_they_are_the_same_ones():
    one, other = Prefills([], TOLD_AT, [sent(12.0), sent(11.0)]), Prefills([], TOLD_AT, [sent(11.0), sent(12.0)])
    assert one == other
    assert hash(one) == hash(other)
    assert one != Prefills([], TOLD_AT, [sent(12.0)])
    assert one[0] == DuePrefill(0, 11.0, 0.5)
