"""The lengths of answers that were seen, some of them cut, and the distribution that they tell of."""

from itertools import pairwise
from math import log
from random import Random

import pytest

from router.history.length_histogram import (
    EXACT,
    GROWTH,
    LONGEST,
    LOWS,
    MEMORY,
    NUM_BINS,
    LengthDistribution,
    LengthHistogram,
    bin_of,
)
from tests.seeds import each_seed

SURE = 1e9  # answers behind a distribution: nothing beyond them is likely


def seen(*whole: int, cut: tuple[int, ...] = (), times: int = 1) -> LengthHistogram:
    histogram = LengthHistogram()
    for _ in range(times):
        for length in whole:
            histogram.add(length, is_whole=True)
        for length in cut:
            histogram.add(length, is_whole=False)
    return histogram


def told(histogram: LengthHistogram, num_seen: float = SURE) -> LengthDistribution:
    return LengthDistribution([(histogram, 1.0)], num_seen)


def test_short_lengths_have_a_bin_each_and_longer_ones_one_of_eight_per_cent():
    assert [bin_of(length) for length in (0, 1, 2, EXACT)] == [0, 0, 1, EXACT - 1]
    assert all(after <= max(low + 1, low * GROWTH + 1) for low, after in pairwise(LOWS))
    assert [bin_of(low) for low in LOWS[:-1]] == list(range(NUM_BINS))
    assert bin_of(100 * LONGEST) == NUM_BINS - 1


def test_the_mean_of_whole_answers_is_theirs():
    assert told(seen(10, 20, 30, 20)).mean(1000) == pytest.approx(20)
    assert told(seen(1000, 1001)).mean(4096) == pytest.approx(1000.5), "although they share a bin with others"


def test_a_limit_cuts_what_is_longer():
    assert told(seen(10, 30)).mean(20) == pytest.approx((10 + 20) / 2)
    assert told(seen(10, 30)).quantile(0.9, 20) == 20


def test_what_is_longer_already_is_longer_than_all_that_are_not():
    assert told(seen(10, 30)).mean(1000, 10) == pytest.approx(30)
    assert told(seen(10, 30)).quantile(0.1, 1000, 10) == 30


def test_a_cut_answer_would_have_been_longer():
    """Kaplan and Meier: of ten that were there, one ended at 10; of the four that were not cut at 20, all at 30."""
    histogram = seen(10, *[30] * 4, cut=(20,) * 5)
    assert told(histogram).mean(1000) == pytest.approx(0.1 * 10 + 0.9 * 30)


def test_beyond_the_longest_lengths_are_geometric():
    """One ended at 10, and another one was cut at 20: one end for 30 tokens."""
    distribution = told(seen(10, cut=(20,)))
    assert distribution.mean(100_000) == pytest.approx(0.5 * 10 + 0.5 * (20 + 30), rel=0.02)
    assert distribution.quantile(0.75, 100_000, 10) == pytest.approx(20 + 30 * log(4), rel=0.05)
    assert told(seen(cut=(20,))).mean(1000) == 1000, "none has ended"


def test_little_history_makes_an_answer_as_long_as_it_may_be():
    assert told(seen(10), 0.0).mean(1000) == 1000
    assert told(seen(10), 1.0).mean(1000) == pytest.approx(0.75 * 10 + 0.25 * 1000)
    assert told(seen(10), 1.0).quantile(0.7, 1000) == 10
    assert told(seen(10), 1.0).quantile(0.8, 1000) == 1000


def test_quantiles_are_lengths_that_so_many_do_not_exceed():
    distribution = told(seen(*range(1, 31)))
    assert [distribution.quantile(share, 1000) for share in (0.09, 0.49, 0.89)] == [3, 15, 27]


def test_histograms_count_as_often_as_they_are_told_to():
    mixed = LengthDistribution([(seen(10), 3.0), (seen(30), 1.0)], SURE)
    assert mixed.mean(1000) == pytest.approx((3 * 10 + 30) / 4)


def test_old_answers_count_less_and_less():
    histogram = seen(10, times=int(MEMORY))
    assert histogram.weight == MEMORY / 2
    assert told(histogram).mean(1000) == pytest.approx(10), "tokens are halved with them"
    for _ in range(int(MEMORY / 2)):
        histogram.add(30, is_whole=True)
    assert told(histogram).mean(1000) == pytest.approx(20)


@each_seed(range(20))
def test_distributions_are_ones(seed):
    """Whatever was seen: means lie between what they are conditioned on and the limit, quantiles rise."""
    random, histogram = Random(seed), LengthHistogram()
    count = random.choice([1, 3, 50, 9000])
    for _ in range(count):
        histogram.add(round(random.lognormvariate(4, 2)), is_whole=random.random() < random.choice([0.1, 0.9]))
    distribution = LengthDistribution([(histogram, random.choice([1.0, 0.1])), (histogram, 1 / 3)], count)
    for limit in (1, 100, 10_000):
        quantiles = [distribution.quantile(share / 20, limit) for share in range(1, 20)]
        assert quantiles == sorted(quantiles)
        assert 1 <= quantiles[0] <= quantiles[-1] <= limit
        for longer_than in range(0, limit, max(1, limit // 7)):
            assert longer_than < distribution.mean(limit, longer_than) <= limit
            assert longer_than < distribution.quantile(0.5, limit, longer_than) <= limit
