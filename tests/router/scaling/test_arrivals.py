"""The rate of arrivals, and the moment from which on it is another one."""

from math import exp, inf
from random import Random

import pytest

from router.scaling.arrivals import MEMORY_S, ArrivalRate
from tests.seeds import each_seed

SPAN_S = 0.5
SEEDS = 4


def counts(rate: float, seconds: float, random: Random) -> list[int]:
    """Poisson arrivals in spans of half a second."""
    return [_poisson(rate * SPAN_S, random) for _ in range(round(seconds / SPAN_S))]


def _poisson(mean: float, random: Random) -> int:
    limit, product, number = exp(-mean), random.random(), 0
    while product > limit:
        product *= random.random()
        number += 1
    return number


def fed(rate: ArrivalRate, arrivals: list[int]) -> list[float]:
    """When changes were seen, in seconds."""
    return [index * SPAN_S for index, count in enumerate(arrivals, 1) if rate.observe(count, SPAN_S)]


@each_seed(SEEDS, most=20)
@pytest.mark.parametrize("mean", [0.3, 4.0, 30.0])
def test_chance_is_no_change(seed: int, mean: float):
    rate = ArrivalRate()
    fed(rate, counts(mean, 20 / mean, Random(f"{seed}/start")))
    assert fed(rate, counts(mean, 1200, Random(seed))) == []
    assert rate.rate == pytest.approx(mean, rel=0.25)


@each_seed(SEEDS, most=20)
@pytest.mark.parametrize(("before", "after", "within_s"), [(5.0, 15.0, 10), (5.0, 1.0, 20), (20.0, 60.0, 4)])
def test_a_change_is_seen_soon_and_what_was_before_is_forgotten(
    seed: int, before: float, after: float, within_s: float
):
    rate, random = ArrivalRate(), Random(seed)
    fed(rate, counts(before, 300, random))
    seen = fed(rate, counts(after, within_s, random))
    assert len(seen) >= 1
    fed(rate, counts(after, 60, random))
    assert rate.rate == pytest.approx(after, rel=0.3)


@each_seed(SEEDS, most=20)
def test_bursts_that_are_usual_are_no_change(seed: int):
    """Each arrival is one of four at once."""
    rate, random = ArrivalRate(), Random(seed)
    fed(rate, [4 * count for count in counts(1.0, 240, random)])
    assert len(fed(rate, [4 * count for count in counts(1.0, 600, random)])) <= 1


def test_silence_is_a_change_too():
    rate = ArrivalRate()
    fed(rate, counts(4.0, 120, Random(0)))
    assert fed(rate, [0] * 40)
    assert rate.rate < 0.5


def test_what_is_not_known_is_nothing():
    rate = ArrivalRate()
    assert (rate.rate, rate.above(2.0)) == (0.0, 0.0)
    assert not rate.observe(3, 0.0)
    rate.observe(4, 2.0)
    assert rate.rate == 2.0
    assert rate.above(1.0) == pytest.approx((4 + 5**0.5) / 2)


def test_the_past_counts_less_and_less():
    """A slow drift, of a tenth each five minutes, is followed without a change being seen."""
    rate, random, mean = ArrivalRate(), Random(1), 10.0
    for _ in range(12):
        fed(rate, counts(mean, 300, random))
        mean *= 1.1
    assert rate.rate == pytest.approx(mean / 1.1, rel=0.15)
    assert rate.above(1.0) < inf
    assert MEMORY_S >= 300
