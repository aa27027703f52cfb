"""What a gateway keeps for the placement daemon."""

from msgspec.structs import replace

from mesh.wire.control import ProcessState
from mesh.wire.placement import PlacementStatus
from mesh.wire.status import Memory, ServiceTally
from router.history.marks import MarkKeeper

STATUS = PlacementStatus(1, ProcessState.READY, "local", 1, "apply", "listening", 0, 10.0)


def said(interval, age_s=0.0, **memory):
    return replace(STATUS, memory=Memory(interval, 60.0, **memory), interval_age_s=age_s)


def test_a_daemon_that_has_nothing_to_say_yet_leaves_no_mark():
    keeper = MarkKeeper()
    keeper.hear(STATUS, [ServiceTally("a", 5)], 100.0)
    assert keeper.mark(101.0) is None
    assert (keeper.heard, keeper.heard_at) == (STATUS, 100.0)


def test_it_tells_what_was_counted_when_the_interval_began():
    keeper = MarkKeeper()
    keeper.hear(said(3, age_s=2.0), [ServiceTally("a", 5)], 100.0)
    keeper.hear(said(3, age_s=12.0), [ServiceTally("a", 50)], 110.0)
    mark = keeper.mark(120.0)
    assert (mark.age_s, mark.services) == (22.0, [ServiceTally("a", 5)])
    keeper.hear(said(4), [ServiceTally("a", 70)], 130.0)
    assert keeper.mark(130.0).services == [ServiceTally("a", 70)]


def test_what_is_new_within_an_interval_is_told_and_old_words_are_not():
    keeper = MarkKeeper()
    keeper.hear(said(3), [], 100.0)
    keeper.hear(said(3, settled=2, estimate=1.5), [], 101.0)
    keeper.hear(said(2, settled=1), [], 102.0)
    assert keeper.mark(103.0).memory == Memory(3, 60.0, 1.5, 2)
