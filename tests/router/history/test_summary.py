import pytest

from mesh.wire.requests import FinishReason
from router.generation import Draining, Fault, Overloaded, RequestFailed, TokenBatch
from router.history.records import Outcome
from router.history.summary import record_of
from router.history.timeline import Seen
from router.history.timelines import Timelines
from router.policies.policy import Dispatch
from tests.router.cluster import M0, P0, SERVICE, make_engine, make_request, make_spec, make_view

RULE = "1: idle prefill engine"


def batch(*tokens, finish=None, cached=0):
    return TokenBatch(tokens, finish, cached, None, None)


@pytest.fixture
def timelines():
    return Timelines()


def dispatch(timelines, timeline, now, attempt=0):
    decision = Dispatch(P0, M0, RULE, prefill_s=0.1, predicted_ttft_s=0.4)
    timelines.decided(
        timeline, attempt, "tropical", decision, Seen(now, make_request(), make_view(make_engine(P0)), ())
    )


def test_a_finished_request(timelines):
    spec = make_spec(num_tokens=7, priority=3, age_s=0.5)
    timeline = timelines.arrived(spec, 110.5)
    dispatch(timelines, timeline, 110.1)
    dispatch(timelines, timeline, 110.2, attempt=1)
    timelines.delivered(timeline, batch(1, cached=4), P0, 112.0)
    timelines.delivered(timeline, batch(2, 3), P0, 113.0)
    assert timelines.open == [timeline]
    timelines.delivered(timeline, batch(4, finish=FinishReason.LENGTH), P0, 115.0)
    timelines.finished(timeline, FinishReason.LENGTH, 115.0)
    assert timelines.open == []
    record = record_of(timeline, origin_s=100.0)
    assert (record.arrived_s, record.ttft_s, record.tpot_s, record.e2e_s) == (10.0, 2.0, 1.0, 5.0)
    assert (record.service, record.input_tokens, record.output_tokens, record.cached_tokens) == (SERVICE, 7, 4, 4)
    assert (record.outcome, record.reason, record.partial_tokens) == (Outcome.FINISHED, None, 0)
    assert (record.prefill_engine, record.decode_engine, record.rule) == (P0, M0, RULE)
    assert (record.queued_s, record.predicted_ttft_s, record.attempts) == (pytest.approx(0.2), 0.4, 2)
    assert (record.slo_ttft_s, record.slo_tpot_s, record.priority) == (spec.slo_ttft_s, spec.slo_tpot_s, 3)


def test_a_request_queued_until_the_dispatch_that_brought_its_first_token(timelines):
    timeline = timelines.arrived(make_spec(), 100.0)
    dispatch(timelines, timeline, 100.5)
    timelines.delivered(timeline, batch(1), P0, 101.0)
    dispatch(timelines, timeline, 105.0, attempt=1)
    timelines.finished(timeline, FinishReason.STOP, 106.0)
    assert (record_of(timeline).queued_s, record_of(timeline).attempts) == (0.5, 2)


def test_a_client_that_has_all_it_wants_was_answered(timelines):
    """A stop string ends an answer before the engine does: what comes after its last token is no part of its TPOT."""
    timeline = timelines.arrived(make_spec(), 100.0)
    timelines.delivered(timeline, batch(1), P0, 101.0)
    timelines.delivered(timeline, batch(2), P0, 103.0)
    timelines.left(timeline, Outcome.FINISHED, "stop", 110.0)
    record = record_of(timeline)
    assert (record.outcome, record.output_tokens, record.tpot_s, record.e2e_s) == (Outcome.FINISHED, 2, 2.0, 10.0)


def test_a_cancelled_request_says_what_it_had_got_and_what_it_asked_for(timelines):
    timeline = timelines.arrived(make_spec(max_tokens=50), 100.0)
    timelines.delivered(timeline, batch(1, 2, 3), P0, 101.0)
    timelines.left(timeline, Outcome.CANCELLED, "no longer wanted", 102.0)
    record = record_of(timeline)
    assert (record.outcome, record.output_tokens, record.partial_tokens) == (Outcome.CANCELLED, 50, 3)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Overloaded("full", 1.0), Outcome.REJECTED),
        (Draining(), Outcome.REJECTED),
        (RequestFailed("fits nowhere", Fault.CLIENT), Outcome.FAILED),
    ],
)
def test_what_was_not_answered_has_a_reason(timelines, error, outcome):
    timeline = timelines.arrived(make_spec(max_tokens=50), 100.0)
    timelines.failed(timeline, error, 101.0)
    record = record_of(timeline)
    assert (record.outcome, record.reason, record.output_tokens) == (outcome, str(error), 50)
    assert (record.ttft_s, record.queued_s, record.prefill_engine, record.attempts) == (None, None, None, 0)
