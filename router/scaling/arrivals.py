"""The rate of arrivals now: what is older than its last change is forgotten (Aladdin, section 5.2).

The past is kept in bins, fine ones first, coarse ones where it is long ago (as ADWIN does, Bifet and Gavalda, 2007).
With each observation, all bounds between two bins are tried: had the rate before been another one than after? The log
likelihood ratio of two rates to one says how much better that explains the counts. Where it is above `THRESHOLD`, what
was before is dropped. Arrivals that come in bursts are worth less as evidence, by their index of dispersion.
"""

from math import log, sqrt

THRESHOLD = 14.0  # chance is above that once in some ten million independent tests
BINS = 4  # of each size
MEMORY_S = 600.0
DISPERSION_MEMORY = 240.0  # observations


class ArrivalRate:
    """Estimates the rate of one service, from counts of arrivals in spans that follow each other. Rates are arrivals a
    second.
    """

    def __init__(self) -> None:
        self._bins: list[tuple[int, float, int]] = []  # count, seconds, size in observations; oldest first
        self._dispersion = 1.0
        self.num_changes = 0

    def __repr__(self) -> str:
        return f"<ArrivalRate {self.rate:.3g}/s, {self.num_changes} changes>"

    @property
    def rate(self) -> float:
        count, span_s = self._sums()
        return count / span_s if span_s else 0.0

    def above(self, num_deviations: float) -> float:
        """The rate, and as many standard errors more."""
        count, span_s = self._sums()
        return (count + num_deviations * sqrt(self._dispersion * (count + 1))) / span_s if span_s else 0.0

    def observe(self, count: int, span_s: float) -> bool:
        """Count a span. Return whether it is clear by now that the rate has changed."""
        if span_s <= 0:
            return False
        self._disperse(count, span_s)
        self._bins.append((count, span_s, 1))
        self._merge()
        while self._sums()[1] > MEMORY_S and len(self._bins) > 1:
            del self._bins[0]
        bound = self._last_change()
        if bound is None:
            return False
        del self._bins[:bound]
        self.num_changes += 1
        return True

    def _sums(self) -> tuple[int, float]:
        return sum(one[0] for one in self._bins), sum(one[1] for one in self._bins)

    def _disperse(self, count: int, span_s: float) -> None:
        """The index of dispersion: 1 for Poisson arrivals, more for those in bursts."""
        expected = self.rate * span_s
        if expected > 0:
            excess = (count - expected) ** 2 / expected
            self._dispersion = max(1.0, self._dispersion + (excess - self._dispersion) / DISPERSION_MEMORY)

    def _merge(self) -> None:
        """The two oldest of a size become one of twice the size where there are too many."""
        size, last = 1, len(self._bins)
        while True:
            first = last
            while first > 0 and self._bins[first - 1][2] == size:
                first -= 1
            if last - first <= BINS:
                return
            one, other = self._bins[first : first + 2]
            self._bins[first : first + 2] = [(one[0] + other[0], one[1] + other[1], 2 * size)]
            size, last = 2 * size, first + 1

    def _last_change(self) -> int | None:
        """The bound that explains most, if it explains enough."""
        total, total_s = self._sums()
        before, before_s, best, found = 0, 0.0, THRESHOLD * self._dispersion, None
        for bound, (count, span_s, _) in enumerate(self._bins[:-1], 1):
            before, before_s = before + count, before_s + span_s
            gain = _fit(before, before_s) + _fit(total - before, total_s - before_s) - _fit(total, total_s)
            if gain > best:
                best, found = gain, bound
        return found


def _fit(count: int, span_s: float) -> float:
    """Log likelihood of Poisson arrivals at the rate that explains them best, less what does not depend on rates."""
    return count * log(count / span_s) if count else 0.0
