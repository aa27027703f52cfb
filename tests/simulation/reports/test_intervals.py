"""Intervals of means against processes whose means are known."""

from random import Random
from statistics import fmean

import pytest

from simulation.reports.intervals import batch_means, share_bounds, share_interval, t_quantile


def autoregressive(number, phi, seed):
    """Values about 10, each of which remembers ``phi`` of the one before it."""
    random, value, values = Random(seed), 0.0, []
    for _ in range(number):
        value = phi * value + random.gauss(0, 1)
        values.append(10 + value)
    return values


@pytest.mark.parametrize("phi", [0.0, 0.8])
def test_batch_means_hold_the_true_mean_as_often_as_they_say(phi):
    found = [batch_means(autoregressive(3000, phi, seed)) for seed in range(200)]
    hits = sum(one.low <= 10 <= one.high for one in found)
    assert 0.88 * 200 <= hits <= 200


def test_values_that_depend_on_each_other_tell_less():
    wide, narrow = (fmean(batch_means(autoregressive(3000, phi, seed)).half for seed in range(20)) for phi in (0.8, 0))
    assert 4 < wide / narrow < 6.5  # 1 / (1 - phi) = 5


def test_few_values_have_no_interval():
    assert batch_means([1.0] * 24) is None
    assert batch_means([1.0] * 25).half == 0


def test_a_share_that_was_always_kept_is_not_sure_to_be():
    found = share_interval([True] * 100)
    assert (found.mean, found.high) == (1, 1)
    assert found.low == pytest.approx(0.963, abs=1e-3)
    assert share_bounds(50, 100, 0.95) == pytest.approx((0.4038, 0.5962), abs=1e-4)


def test_quantiles_of_student_are_those_of_tables():
    known = {(0.975, 4): 2.7764, (0.975, 9): 2.2622, (0.975, 29): 2.0452, (0.99, 8): 2.8965, (0.99, 19): 2.5395}
    for (probability, freedom), value in known.items():
        assert t_quantile(probability, freedom) == pytest.approx(value, rel=5e-3)
