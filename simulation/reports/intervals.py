"""Intervals in which what a run measured lies, had it gone on for ever."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import NormalDist, fmean, stdev

CONFIDENCE = 0.95
NUM_BATCHES = (30, 20, 15, 10, 5)  # the first that leaves batches independent counts
FEWEST_IN_BATCH = 5
CHANCE = 0.8  # one-sided: a correlation that chance exceeds more rarely than in one case of five is one


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the bounds between which the true one lies with `CONFIDENCE`."""

    mean: float
    low: float
    high: float

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


def batch_means(values: Sequence[float]) -> Interval | None:
    """The interval of a mean, for values in their order that depend on those before them; None for too few values.

    It takes means of as many batches as do not depend on each other (Law, "Simulation Modeling and Analysis", 9.5.3).
    """
    for number in NUM_BATCHES:
        if len(values) < number * FEWEST_IN_BATCH:
            continue
        means = means_of_batches(values, number)
        if number == NUM_BATCHES[-1] or _correlation(means) < NormalDist().inv_cdf(CHANCE) / sqrt(number):
            half = t_quantile(0.5 + CONFIDENCE / 2, number - 1) * stdev(means) / sqrt(number)
            middle = fmean(values)
            return Interval(middle, middle - half, middle + half)
    return None


def share_interval(kept: Sequence[bool]) -> Interval | None:
    """The interval of a share by `batch_means`, but no narrower than that of as many independent requests."""
    found = batch_means(array("d", kept))
    if found is None:
        return None
    low, high = share_bounds(sum(kept), len(kept), CONFIDENCE)
    return Interval(found.mean, max(0.0, min(low, found.low)), min(1.0, max(high, found.high)))


def share_bounds(num_good: int, number: int, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of a share that was seen in ``number`` independent requests, at least one."""
    z, share = NormalDist().inv_cdf(0.5 + confidence / 2), num_good / number
    middle = (share + z * z / (2 * number)) / (1 + z * z / number)
    half = z * sqrt(share * (1 - share) / number + z * z / (4 * number * number)) / (1 + z * z / number)
    return max(0.0, middle - half), min(1.0, middle + half)


def means_of_batches(values: Sequence[float], number: int) -> list[float]:
    """Means of so many batches of equal size, from the first value on."""
    size = len(values) // number
    return [fmean(values[index * size : (index + 1) * size]) for index in range(number)]


def _correlation(means: Sequence[float]) -> float:
    """Correlation of each batch with the next one."""
    middle = fmean(means)
    variance = sum((mean - middle) ** 2 for mean in means)
    if variance == 0:
        return 0.0
    return sum((one - middle) * (other - middle) for one, other in pairwise(means)) / variance


def t_quantile(probability: float, freedom: int) -> float:
    """Student's t by its expansion about the normal quantile (Abramowitz and Stegun, 26.7.5): within 0.5 % from 4
    degrees of freedom on.
    """
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / float(freedom) ** power for power, term in enumerate(terms))
