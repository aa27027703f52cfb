"""Buckets of the last minute."""

from router.cli.top.known.promises import ALL_KEYS, MOST_BUCKETS, TREND_PARTS, RecentBuckets, promise_rows
from router.feed.frames import ServicePromise
from tests.router.cli.top.told import NOW, SERVICE, bucket, promises

PROMISES = {SERVICE: ServicePromise(SERVICE, 1.0, 0.1, 0.9)}


def named(*buckets):
    return [(SERVICE, one.key, NOW - one.at, one) for one in buckets]


def test_each_service_has_a_row_for_all_and_one_for_each_key():
    rows = promise_rows(named(bucket(key="b", kept=1), bucket(key="a")), PROMISES)
    assert [(row.key, row.ended, row.kept) for row in rows] == [(ALL_KEYS, 20, 10), ("a", 10, 9), ("b", 10, 1)]
    assert rows[0].attainment == 0.5
    assert rows[0].goodput == 10 / 60


def test_a_single_key_has_no_row_of_its_own():
    assert [row.key for row in promise_rows(named(bucket()), PROMISES)] == [ALL_KEYS]


def test_a_service_without_requests_is_there():
    (row,) = promise_rows([], PROMISES)
    assert (row.service, row.ended, row.attainment, row.ttft_p99_s) == (SERVICE, 0, None, None)
    assert row.trend == (None,) * TREND_PARTS


def test_percentiles_are_the_median_and_the_worst_of_buckets():
    (row,) = promise_rows(named(bucket(p99=0.5), bucket(p99=2.0)), PROMISES)
    assert (row.ttft_p50_s, row.ttft_p99_s, row.tpot_p99_s) == (0.1, 2.0, 0.04)


def test_the_trend_ends_now():
    (row,) = promise_rows(named(bucket(NOW - 1, kept=10), bucket(NOW - 58, kept=5)), PROMISES)
    assert row.trend[-1] == 1.0
    assert row.trend[0] == 0.5
    assert row.trend[1:-1] == (None,) * (TREND_PARTS - 2)


def test_a_bucket_is_replaced_while_it_grows_and_forgotten_when_it_is_old():
    known = RecentBuckets()
    known.take(promises(bucket(ended=1)))
    known.take(promises(bucket(ended=2)))
    assert [one.ended for *_, one in known.since(NOW - 60)] == [2]
    known.take(promises(at=NOW + 61))
    assert known.since(0) == []


def test_no_feed_makes_it_grow():
    known = RecentBuckets()
    known.take(promises(*(bucket(key=f"{number}") for number in range(MOST_BUCKETS + 10))))
    assert len(known.since(0)) == MOST_BUCKETS
