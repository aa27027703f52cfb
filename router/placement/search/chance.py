"""Computes the chance that a plan only seemed to gain: Fisher's randomization test of paired differences.

If neither of two plans were better, what one of them gained on a sample could as well be what it lost there. So the
chance of a sum of gains is the share, among all ways to give gains other signs, of those that sum up to as much. That
needs no distribution: a few small losses beside many large gains are little evidence against them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import ceil, floor, log2

SPARE = 2  # samples more than are needed if all of them are won: so many can be lost
ROUNDING = 1e-12


def num_samples(risk: float) -> int:
    """Return how many are drawn, for a test that what is no better passes with this chance at most."""
    return ceil(log2(1 / risk)) + SPARE


def most_losses(risk: float) -> int:
    """Return the most losses among `num_samples` with which a test passes, however small they are: each may have either
    sign.
    """
    return floor(num_samples(risk) - log2(1 / risk))


def chance(gains: Sequence[float]) -> float:
    """Return the chance of as large a sum if each gain could as well be a loss. Takes ``2^(n/2)`` steps."""
    half = len(gains) // 2
    some, others = _sums(gains[:half]), sorted(_sums(gains[half:]))
    least = sum(gains) - ROUNDING
    as_large = sum(len(others) - bisect_left(others, least - one) for one in some)
    return as_large / float(2 ** len(gains))


def _sums(values: Sequence[float]) -> list[float]:
    """With either sign each."""
    sums = [0.0]
    for value in values:
        sums = [one + signed for one in sums for signed in (value, -value)]
    return sums
