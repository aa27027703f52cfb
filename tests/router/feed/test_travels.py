"""What readers of the feed are told of requests."""

import pytest

from mesh.wire.requests import FinishReason
from router.feed.travels import MANY_EVENTS, MOST_EVENTS, Travels
from router.generation import Overloaded, TokenBatch
from router.history.records import Outcome
from router.history.timeline import Seen
from router.history.timelines import Timelines
from router.policies.policy import Dispatch, Wait
from tests.router.cluster import D0, P0, make_request, make_spec, make_view
from tests.router.feed_sources import wall


@pytest.fixture
def timelines():
    return Timelines()


@pytest.fixture
def travels(timelines):
    return Travels(timelines, wall)


def dispatch(timelines, timeline, now):
    decision = Dispatch(P0, D0, "rule", prefill_s=0.1, predicted_ttft_s=0.2)
    timelines.decided(timeline, 0, "p", decision, Seen(now, make_request(), make_view(), ()))


def deliver(timelines, timeline, now, *tokens):
    timelines.delivered(timeline, TokenBatch(tokens, None, 0, None, None), P0, now)


def told(frame):
    return [] if frame is None else [(event.what, event.engine) for event in frame.events]


def test_a_request_is_told_from_its_arrival_to_its_end(timelines, travels):
    timeline = timelines.arrived(make_spec(), 1.0, "alice")
    dispatch(timelines, timeline, 1.1)
    first = travels.look(1.2)
    assert told(first) == [("arrived", ""), ("dispatched", P0)]
    assert (first.events[0].key, first.events[0].at, first.events[1].decode) == ("alice", wall(1.0), D0)
    deliver(timelines, timeline, 1.3, 5)
    timeline.change_owner(D0, 1.4)
    assert told(travels.look(1.5)) == [("first_token", P0), ("moved", D0)]
    deliver(timelines, timeline, 1.6, 6)
    assert travels.look(1.7) is None
    timelines.finished(timeline, FinishReason.LENGTH, 1.8)
    (end,) = travels.look(1.9).events
    assert (end.what, end.tokens, end.kept, end.outcome) == ("ended", 2, False, "finished")  # 0.3 s a token: too slow
    assert travels.look(2.0) is None


def test_one_that_came_and_went_between_two_looks_is_told_whole(timelines, travels):
    timelines.failed(timelines.arrived(make_spec(), 1.0), Overloaded("full", 1.0), 1.1)
    events = travels.look(1.2).events
    assert [(event.what, event.outcome) for event in events] == [("arrived", ""), ("ended", "rejected")]
    assert events[1].reason == "full"


def test_whoever_leaves_breaks_no_promise(timelines, travels):
    timelines.left(timelines.arrived(make_spec(), 1.0), Outcome.CANCELLED, "gone", 1.1)
    assert travels.look(1.2).events[-1].kept is None


def test_why_it_waits_and_why_it_was_refused(timelines, travels):
    timeline = timelines.arrived(make_spec(), 1.0)
    timelines.decided(timeline, 0, "p", Wait("no room"), Seen(1.1, make_request(), make_view(), ()))
    timeline.interrupt("engine lost", 1.2)
    assert [(event.what, event.reason) for event in travels.look(1.3).events][1:] == [
        ("waits", "no room"), ("interrupted", "engine lost"),
    ]  # fmt: skip


def test_many_requests_are_told_of_in_part_and_each_one_whole(timelines, travels):
    for second in range(4):
        for number in range(2 * MANY_EVENTS):
            timelines.arrived(make_spec(f"{second}-{number}"), float(second))
        frame = travels.look(second + 0.5)
        assert len(frame.events) <= MOST_EVENTS
    assert frame.one_in > 1
    shown = {event.id for event in frame.events}
    assert len(shown) < 2 * MANY_EVENTS
    for timeline in timelines.open:
        timelines.finished(timeline, FinishReason.STOP, 9.0)
    after = travels.look(9.5)
    assert all(event.what == "ended" for event in after.events)
    assert travels._num_told == {}


def test_all_are_told_of_again_when_it_is_calm(timelines, travels):
    for number in range(8 * MANY_EVENTS):
        timelines.arrived(make_spec(f"{number}"), 1.0)
    assert travels.look(1.5).one_in == 2
    for look in range(30):
        travels.look(2.0 + look)
    timelines.arrived(make_spec("late"), 40.0)
    assert travels.look(41.0).one_in == 1


def test_a_newcomer_hears_of_what_is_in_flight(timelines, travels):
    timeline = timelines.arrived(make_spec(), 1.0)
    dispatch(timelines, timeline, 1.1)
    travels.look(1.2)
    assert told(travels.in_flight(1.3)) == [("arrived", ""), ("dispatched", P0)]
    timelines.finished(timeline, FinishReason.STOP, 1.4)
    assert told(travels.in_flight(1.5)) == []
