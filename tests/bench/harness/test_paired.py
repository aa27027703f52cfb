"""Comparisons of contenders, seed by seed."""

from math import inf

import pytest

from bench.harness.paired import difference, ratio


def test_seeds_are_compared_in_pairs():
    """What differs between seeds is in both, and cancels."""
    found = difference([90.0, 70.0, 80.5], [80.0, 60.5, 70.0])
    assert found.mean == pytest.approx(10.0)
    assert 8.7 < found.low < 10 < found.high < 11.3
    assert difference([3.0], [1.0]).low is None


def test_differences_that_are_all_alike_have_an_interval_without_width():
    found = difference([3.0, 5.0, 9.0], [1.0, 3.0, 7.0])
    assert found.low == found.mean == found.high == 2.0
    assert ratio([2.0, 4.0], [2.0, 4.0]).text() == "1.00 (1.00 to 1.00)"


def test_ratios_are_geometric_means():
    assert ratio([4.0, 9.0], [1.0, 1.0]).mean == pytest.approx(6.0)
    assert ratio([4.0], [0.0]).mean == inf
    assert ratio([0.0, 4.0], [4.0, 4.0]).mean == pytest.approx(0.5)
