import pytest

from mesh.wire.requests import FinishReason, RefusalCode
from router.generation import Fault, Overloaded, RequestFailed
from router.history.decisions import KEPT_EVENTS, DecisionLog, Seen
from router.history.records import Outcome
from router.policies.policy import Dispatch, Wait
from tests.router.cluster import D0, M0, P0, P1, make_engine, make_request, make_spec, make_view

VIEW = make_view(*(make_engine(id_) for id_ in (P0, P1, D0, M0)))


def seen(id_="r", now=1.0):
    return Seen(now, make_request(id_=id_), VIEW, frozenset())


def dispatch(prefill=P0, decode=D0):
    return Dispatch(prefill, decode, "rule", prefill_s=0.1, predicted_ttft_s=0.2)


def test_times_count_from_the_arrival_and_prediction_meets_reality():
    log = DecisionLog()
    log.arrived(make_spec("r"), 1.0)
    log.decided(0, "tropical", dispatch(), seen(now=1.5))
    log.accepted("r", P0, 1.6)
    log.first_token("r", P0, 1.75)
    log.moved("r", D0, 1.8)
    log.finished("r", FinishReason.LENGTH, 11, 2.75)
    story = log.of("r")
    assert [event.at_s for event in story.events] == pytest.approx([0.5, 0.6, 0.75, 0.8, 1.75])
    assert (story.first_token.since_dispatch_s, story.first_token.predicted_s) == (pytest.approx(0.25), 0.2)
    assert (story.ended.outcome, story.ended.reason, story.ended.num_tokens) == (Outcome.FINISHED, "length", 11)
    assert story.ended.tpot_s == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(Overloaded("full", 1.0), Outcome.REJECTED), (RequestFailed("broken", Fault.SERVER), Outcome.FAILED)],
)
def test_what_did_not_finish_says_why(error, outcome):
    log = DecisionLog()
    log.arrived(make_spec("r"), 0.0)
    log.failed("r", error, 0, 1.0)
    assert (log.of("r").ended.outcome, log.of("r").ended.reason) == (outcome, str(error))


def test_the_last_requests_that_ended_are_kept_and_all_that_did_not():
    log = DecisionLog(kept_requests=3)
    log.arrived(make_spec("long"), 0.0)
    for n in range(5):
        log.arrived(make_spec(f"r{n}"), float(n))
        log.failed(f"r{n}", Overloaded("full", 1.0), 0, n + 0.5)
    assert [story.id for story in log] == ["long", "r2", "r3", "r4"]
    assert [story.id for story in log.recent(2)] == ["r4", "r3"]
    assert (log.num_forgotten, log.remembers_from) == (2, 2.5)
    assert log.of("r0") is None
    assert [story.id for story in log.find(lambda id_: id_ != "r3")] == ["r4", "r2", "long"]


def test_nothing_is_forgotten_before_the_log_is_full():
    log = DecisionLog()
    log.arrived(make_spec("r"), 0.0)
    log.failed("r", Overloaded("full", 1.0), 0, 1.0)
    assert (log.num_forgotten, log.remembers_from) == (0, None)


def test_an_id_may_come_again():
    log = DecisionLog()
    for start in (0.0, 10.0):
        log.arrived(make_spec("r"), start)
        log.failed("r", Overloaded("full", 1.0), 0, start + 1)
    assert [story.arrived_at for story in log.find("r".__eq__)] == [10.0, 0.0]
    assert log.of("r").arrived_at == 10.0


def test_a_story_keeps_its_last_events_and_counts_the_others():
    log = DecisionLog()
    log.arrived(make_spec("r"), 0.0)
    for n in range(KEPT_EVENTS + 10):
        log.refused("r", P0, RefusalCode.FULL, "no", float(n))
    story = log.of("r")
    assert (len(story.events), story.num_events, story.events[0].at_s) == (KEPT_EVENTS, KEPT_EVENTS + 10, 10.0)


def test_old_views_keep_the_chosen_engines_only():
    log = DecisionLog(kept_engines=9)
    for id_ in ("a", "b", "c"):
        log.arrived(make_spec(id_), 0.0)
        log.decided(0, "tropical", dispatch() if id_ != "b" else Wait("busy"), seen(id_))
    (first,), (second,), (third,) = (log.of(id_).decisions for id_ in ("a", "b", "c"))
    assert set(first.seen.view.engines) == {P0, D0}
    assert len(second.seen.view.engines) == len(third.seen.view.engines) == first.seen.num_engines == 4
    log.arrived(make_spec("d"), 0.0)
    log.decided(0, "tropical", dispatch(), seen("d"))
    assert (len(second.seen.view.engines), second.seen.num_engines) == (0, 4)


def test_events_of_unknown_requests_are_ignored():
    log = DecisionLog()
    log.decided(0, "tropical", dispatch(), seen())
    log.accepted("r", P0, 1.0)
    log.first_token("r", P0, 1.0)
    log.finished("r", FinishReason.STOP, 1, 2.0)
    assert len(log) == 0


def test_decisions_without_any_engine_in_view_are_bounded_too():
    log = DecisionLog(kept_engines=3)
    for n in range(20):
        log.arrived(make_spec(f"r{n}"), 0.0)
        log.decided(0, "tropical", Wait("no engine"), Seen(1.0, make_request(id_=f"r{n}"), make_view(), ()))
        log.failed(f"r{n}", Overloaded("full", 1.0), 0, 1.0)
    assert len(log._decided) == 3


def test_what_requests_saw_that_are_forgotten_is_forgotten():
    """Though far fewer engines are kept than may be."""
    log = DecisionLog(kept_requests=10)
    log.arrived(make_spec("open"), 0.0)
    for n in range(200):
        log.arrived(make_spec(f"r{n}"), float(n))
        log.decided(0, "tropical", Wait("busy"), seen(f"r{n}"))
        log.decided(0, "tropical", dispatch(), seen(f"r{n}"))
        log.finished(f"r{n}", FinishReason.STOP, 1, n + 0.5)
        assert len(log._decided) <= 2 * 10
    assert all(len(decided.seen.view.engines) == 4 for story in log for decided in story.decisions)
    assert log._num_engines == 2 * 10 * 4
