"""Compares what two contenders did on the same seeds: Student's t of pairs, by scipy."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log
from statistics import fmean

from scipy import stats

CONFIDENCE = 0.95
ALIKE = 1e-9  # differences no further apart than this, relative to their mean, are one


@dataclass(frozen=True, slots=True)
class Compared:
    """A mean over seeds and the bounds that hold the true one in 95 % of cases; without bounds there was one seed."""

    mean: float
    low: float | None = None
    high: float | None = None

    def text(self, digits: int = 2) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.{digits}f}"
        return f"{self.mean:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Compared:
    """Ours less theirs, of the same seeds."""
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    mean = fmean(differences)
    if len(ours) < 2:
        return Compared(mean)
    if max(differences) - min(differences) <= ALIKE * abs(mean):
        return Compared(mean, mean, mean)
    bounds = stats.ttest_rel(ours, theirs).confidence_interval(CONFIDENCE)
    return Compared(mean, float(bounds.low), float(bounds.high))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Compared:
    """Ours over theirs, of the same seeds: the geometric mean. Infinite if theirs are 0 and ours are not."""
    if min(*ours, *theirs) <= 0 or max(*ours, *theirs) == inf:
        whole = fmean(theirs)
        return Compared(fmean(ours) / whole if whole else inf)
    found = difference([log(one) for one in ours], [log(one) for one in theirs])
    if found.low is None or found.high is None:
        return Compared(exp(found.mean))
    return Compared(exp(found.mean), exp(found.low), exp(found.high))
