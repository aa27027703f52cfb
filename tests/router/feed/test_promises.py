"""How promises were kept, by bucket, service and key."""

import pytest

from mesh.wire.requests import FinishReason
from router.feed.promises import BUCKET_S, KEPT_BUCKETS, MOST_KEYS, OTHERS, PromiseSeries
from router.generation import Overloaded, TokenBatch
from router.history.records import Outcome
from router.history.timeline import Seen
from router.history.timelines import Timelines
from router.policies.policy import Dispatch
from tests.router.cluster import D0, P0, SERVICE, make_request, make_spec, make_view
from tests.router.feed_sources import wall


@pytest.fixture
def timelines():
    return Timelines()


@pytest.fixture
def series(timelines):
    return PromiseSeries(timelines, wall)


def answer(timelines, ends_at, ttft_s, *, key="", id_="r"):
    """Two tokens, 50 ms apart, after a first token that was predicted for 0.2 s."""
    arrived_at = ends_at - ttft_s - 0.05
    timeline = timelines.arrived(make_spec(id_), arrived_at, key)
    decision = Dispatch(P0, D0, "rule", prefill_s=0.1, predicted_ttft_s=0.2)
    timelines.decided(timeline, 0, "p", decision, Seen(arrived_at, make_request(), make_view(), ()))
    for at in (arrived_at + ttft_s, ends_at):
        timelines.delivered(timeline, TokenBatch((7,), None, 0, None, None), D0, at)
    timelines.finished(timeline, FinishReason.LENGTH, ends_at)


def test_ends_are_counted_in_their_bucket(timelines, series):
    answer(timelines, 1.0, 0.4)
    answer(timelines, 2.0, 1.5)
    answer(timelines, BUCKET_S + 1.0, 0.4)
    frame = series.look(10.0)
    first, second = frame.buckets
    assert (first.at, second.at) == (wall(0.0), wall(BUCKET_S))
    assert (first.service, first.ended, first.kept_ttft, first.kept_tpot, first.kept) == (SERVICE, 2, 1, 2, 1)
    assert (first.tokens, second.ended) == (4, 1)
    assert first.ttft_s.p50 == pytest.approx(0.4)
    assert first.ttft_s.p99 == pytest.approx(1.5)
    assert second.prediction.p50 == pytest.approx(2.0)
    assert series.look(10.1) is None


def test_a_bucket_that_grows_is_told_again(timelines, series):
    answer(timelines, 1.0, 0.4)
    assert series.look(1.1).buckets[0].ended == 1
    answer(timelines, 1.2, 0.4)
    assert series.look(1.3).buckets[0].ended == 2


def test_refused_ones_break_promises_and_those_whose_client_left_do_not(timelines, series):
    timelines.failed(timelines.arrived(make_spec("a"), 1.0), Overloaded("full", 1.0), 1.1)
    timelines.left(timelines.arrived(make_spec("b"), 1.0), Outcome.CANCELLED, "gone", 1.1)
    (bucket,) = series.look(1.2).buckets
    assert (bucket.ended, bucket.kept, bucket.not_served, bucket.ttft_s) == (1, 0, 1, None)


def test_keys_are_told_apart_up_to_a_bound(timelines, series):
    for number in range(2 * MOST_KEYS):
        answer(timelines, 1.0 + number / 100, 0.1, key=f"key-{number:02}", id_=f"{number}")
    buckets = {bucket.key: bucket.ended for bucket in series.look(2.0).buckets}
    assert len(buckets) == MOST_KEYS + 1
    assert buckets[OTHERS] == MOST_KEYS
    assert buckets["key-00"] == 1


def test_a_newcomer_hears_the_last_minutes_and_no_more(timelines, series):
    for number in range(KEPT_BUCKETS + 20):
        answer(timelines, number * BUCKET_S + 1.0, 0.1, id_=f"{number}")
        series.look(number * BUCKET_S + 2.0)
    buckets = series.all(5000.0).buckets
    assert len(buckets) == KEPT_BUCKETS
    assert buckets[0].at == wall(20 * BUCKET_S)


def test_a_series_begins_with_what_the_gateway_remembers(timelines):
    answer(timelines, 1.0, 0.4)
    assert PromiseSeries(timelines, wall).look(9.0).buckets[0].ended == 1
