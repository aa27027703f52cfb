"""Steadiness against queues of which it is known."""

from random import Random

import pytest

from simulation.reports.steadiness import Stay, Steadiness, judge, judge_closed, judge_trace, warm_up

SEEDS = range(40)


def queue(utilisation, number, seed, num_servers=4):
    """An M/M/c queue whose servers take a second on average, empty at first."""
    random, now, stays = Random(seed), 0.0, []
    free_at = [0.0] * num_servers
    for _ in range(number):
        now += random.expovariate(utilisation * num_servers)
        server = free_at.index(min(free_at))
        free_at[server] = max(now, free_at[server]) + random.expovariate(1)
        stays.append(Stay(now, free_at[server]))
    return stays


def share(steadiness, utilisation, number):
    return sum(judge(queue(utilisation, number, seed)).steadiness in steadiness for seed in SEEDS) / len(SEEDS)


@pytest.mark.parametrize(("utilisation", "number"), [(0.5, 300), (0.8, 300), (0.8, 3000), (0.9, 3000)])
def test_stable_queues_are_steady(utilisation, number):
    assert share({Steadiness.STEADY}, utilisation, number) >= 0.95


@pytest.mark.parametrize(("utilisation", "number"), [(1.5, 300), (1.2, 3000)])
def test_overloaded_queues_grow(utilisation, number):
    assert share({Steadiness.GROWING}, utilisation, number) >= 0.9
    assert share({Steadiness.STEADY}, utilisation, number) <= 0.05


def test_growth_is_what_arrives_beyond_what_is_served():
    found = judge(queue(1.5, 3000, seed=1))
    assert found.growth == pytest.approx(0.5 * 4, rel=0.15)
    assert found.warning(6.0).startswith("not steady: requests in flight grow by")
    assert "6/s is more than this serves, or 3000 requests are too few" in found.warning(6.0)


def test_a_run_that_only_fills_is_not_steady():
    """As where an answer takes as long as the run: each that arrives is one more in flight."""
    found = judge([Stay(at_s, at_s + 1000.0) for at_s in range(300)])
    assert found.steadiness is Steadiness.GROWING
    assert found.growth == pytest.approx(1.0, rel=0.02)


def test_the_warm_up_ends_where_the_level_is_reached():
    random = Random(0)
    values = [min(20.0, number / 10) + random.gauss(0, 1) for number in range(2000)]
    assert 150 <= warm_up(values) <= 250
    assert warm_up([5.0] * 200) == 0
    assert warm_up([random.gauss(5, 1) for _ in range(2000)]) <= 1000


def test_a_level_that_is_reached_late_is_unsettled():
    assert warm_up([float(number // 10) for number in range(200)]) is None
    found = judge_closed([float(number // 10) for number in range(200)])
    assert found.steadiness is Steadiness.UNSETTLED
    assert "200 requests are too few" in found.warning(None)


def test_few_requests_are_not_judged():
    found = judge(queue(0.5, 99, seed=0))
    assert found.steadiness is Steadiness.TOO_SHORT
    assert not found.has_intervals
    assert "99 of 100 at least" in found.warning(2.0)
    assert judge_closed([1.0] * 99).steadiness is Steadiness.TOO_SHORT


def test_a_trace_is_only_told_to_grow():
    assert judge_trace(queue(1.5, 3000, seed=0)).steadiness is Steadiness.GROWING
    for stays in (queue(0.5, 30, seed=0), queue(0.9, 300, seed=3)):
        found = judge_trace(stays)
        assert (found.steadiness, found.num_warm_up, found.has_intervals) == (Steadiness.STEADY, 0, False)


def test_all_at_once_does_not_grow_in_time():
    assert judge([Stay(0.0, float(number)) for number in range(200)]).steadiness is not Steadiness.GROWING
