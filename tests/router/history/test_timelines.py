import pytest

from mesh.wire.requests import FinishReason, RefusalCode
from router.generation import Fault, Overloaded, RequestFailed, TokenBatch
from router.history.records import Outcome
from router.history.timeline import KEPT_EVENTS, FirstToken, Seen
from router.history.timelines import TimelineReaders, Timelines
from router.policies.policy import Dispatch, Wait
from tests.router.cluster import D0, M0, P0, P1, make_engine, make_request, make_spec, make_view

VIEW = make_view(*(make_engine(id_) for id_ in (P0, P1, D0, M0)))


def seen(id_="r", now=1.0):
    return Seen(now, make_request(id_=id_), VIEW, frozenset())


def dispatch(prefill=P0, decode=D0):
    return Dispatch(prefill, decode, "rule", prefill_s=0.1, predicted_ttft_s=0.2)


FULL = Overloaded("full", 1.0)


def batch(*tokens):
    return TokenBatch(tokens, None, 0, None, None)


def refuse(timelines, id_, at):
    timelines.failed(timelines.arrived(make_spec(id_), at), FULL, at + 0.5)


def test_times_count_from_the_arrival_and_prediction_meets_reality():
    timelines = Timelines()
    timeline = timelines.arrived(make_spec("r"), 1.0)
    timelines.decided(timeline, 0, "tropical", dispatch(), seen(now=1.5))
    timeline.accept(P0, 1.6)
    timelines.delivered(timeline, batch(1), P0, 1.75)
    timeline.change_owner(D0, 1.8)
    timelines.delivered(timeline, batch(*range(10)), D0, 2.75)
    timelines.finished(timeline, FinishReason.LENGTH, 2.75)
    [first] = [event for event in timeline.events if isinstance(event, FirstToken)]
    assert timelines.of("r") is timeline
    assert [event.at_s for event in timeline.events] == pytest.approx([0.5, 0.6, 0.75, 0.8, 1.75])
    assert (first.since_dispatch_s, first.predicted_s) == (pytest.approx(0.25), 0.2)
    ended = timeline.ended
    assert (ended.outcome, ended.reason, ended.num_tokens) == (Outcome.FINISHED, "length", 11)
    assert ended.tpot_s == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("error", "outcome"), [(FULL, Outcome.REJECTED), (RequestFailed("broken", Fault.SERVER), Outcome.FAILED)]
)
def test_what_did_not_finish_says_why_and_no_tpot(error, outcome):
    timelines = Timelines()
    timeline = timelines.arrived(make_spec("r"), 0.0)
    for now in (0.5, 0.6):
        timelines.delivered(timeline, batch(1), P0, now)
    timelines.failed(timeline, error, 1.0)
    assert (timeline.ended.outcome, timeline.ended.reason, timeline.ended.tpot_s) == (outcome, str(error), None)


def test_readers_hear_of_each_request_as_it_arrives_gets_tokens_and_ends():
    told = []
    readers = TimelineReaders(
        arrived=(lambda spec: told.append(spec.id),),
        delivered=(lambda timeline, num_tokens, gap_s: told.append((timeline.id, num_tokens, gap_s)),),
        ended=(lambda timeline, spec: told.append((timeline.ended.outcome, len(spec.prompt))),),
    )
    timelines = Timelines(readers)
    timeline = timelines.arrived(make_spec("r", num_tokens=7), 0.0)
    timelines.delivered(timeline, batch(1), P0, 1.0)
    timelines.delivered(timeline, batch(2, 3), P0, 1.5)
    timelines.left(timeline, Outcome.CANCELLED, "gone", 2.0)
    assert told == ["r", ("r", 1, None), ("r", 2, 0.5), (Outcome.CANCELLED, 7)]


def test_a_request_begins_and_ends_once():
    timelines = Timelines()
    timeline = timelines.arrived(make_spec("r"), 0.0)
    with pytest.raises(KeyError, match="arrived twice"):
        timelines.arrived(make_spec("r"), 0.0)
    timelines.failed(timeline, FULL, 1.0)
    with pytest.raises(KeyError):
        timelines.failed(timeline, FULL, 1.0)


def test_the_last_requests_that_ended_are_kept_and_all_that_did_not():
    timelines = Timelines(kept_requests=3)
    timelines.arrived(make_spec("long"), 0.0)
    for n in range(5):
        refuse(timelines, f"r{n}", float(n))
    assert [timeline.id for timeline in timelines] == ["long", "r2", "r3", "r4"]
    assert [timeline.id for timeline in timelines.recent(2)] == ["r4", "r3"]
    assert (timelines.num_forgotten, timelines.remembers_from) == (2, 2.5)
    assert timelines.of("r0") is None
    assert [timeline.id for timeline in timelines.find(lambda id_: id_ != "r3")] == ["r4", "r2", "long"]


def test_nothing_is_forgotten_before_memory_is_full():
    timelines = Timelines()
    refuse(timelines, "r", 0.0)
    assert (timelines.num_forgotten, timelines.remembers_from) == (0, None)


def test_an_id_may_come_again():
    timelines = Timelines()
    for start in (0.0, 10.0):
        refuse(timelines, "r", start)
    assert [timeline.arrived_at for timeline in timelines.find("r".__eq__)] == [10.0, 0.0]
    assert timelines.of("r").arrived_at == 10.0


def test_a_timeline_keeps_its_last_events_and_counts_the_others():
    timeline = Timelines().arrived(make_spec("r"), 0.0)
    for n in range(KEPT_EVENTS + 10):
        timeline.refuse(P0, RefusalCode.FULL, "no", float(n))
    assert (len(timeline.events), timeline.num_events) == (KEPT_EVENTS, KEPT_EVENTS + 10)
    assert timeline.events[0].at_s == 10.0


def test_old_views_keep_the_chosen_engines_only():
    timelines = Timelines(kept_engines=9)
    for id_ in ("a", "b", "c"):
        decision = dispatch() if id_ != "b" else Wait("busy")
        timelines.decided(timelines.arrived(make_spec(id_), 0.0), 0, "tropical", decision, seen(id_))
    (first,), (second,), (third,) = (timelines.of(id_).decisions for id_ in ("a", "b", "c"))
    assert set(first.seen.view.engines) == {P0, D0}
    assert len(second.seen.view.engines) == len(third.seen.view.engines) == first.seen.num_engines == 4
    timelines.decided(timelines.arrived(make_spec("d"), 0.0), 0, "tropical", dispatch(), seen("d"))
    assert (len(second.seen.view.engines), second.seen.num_engines) == (0, 4)


def test_decisions_without_any_engine_in_view_are_bounded_too():
    timelines = Timelines(kept_engines=3)
    for n in range(20):
        timeline, unseen = timelines.arrived(make_spec(f"r{n}"), 0.0), Seen(1.0, make_request(), make_view(), ())
        timelines.decided(timeline, 0, "tropical", Wait("no engine"), unseen)
        timelines.failed(timeline, FULL, 1.0)
    assert len(timelines._decided) == 3


def test_what_requests_saw_that_are_forgotten_is_forgotten():
    """Though far fewer engines are kept than may be."""
    timelines = Timelines(kept_requests=10)
    timelines.arrived(make_spec("open"), 0.0)
    for n in range(200):
        timeline = timelines.arrived(make_spec(f"r{n}"), float(n))
        timelines.decided(timeline, 0, "tropical", Wait("busy"), seen(f"r{n}"))
        timelines.decided(timeline, 0, "tropical", dispatch(), seen(f"r{n}"))
        timelines.finished(timeline, FinishReason.STOP, n + 0.5)
        assert len(timelines._decided) <= 2 * 10
    assert all(len(decided.seen.view.engines) == 4 for timeline in timelines for decided in timeline.decisions)
    assert timelines._num_engines == 2 * 10 * 4
