"""The highest rate at which a promise is kept, found with few runs."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import sqrt

FACTOR = 1.5  # between rates until the promise is kept at one and broken at the next


@dataclass(frozen=True, slots=True)
class Trial:
    rate: float  # requests a second
    attainment: float


@dataclass(frozen=True, slots=True)
class FoundCapacity:
    """The capacity that was found. ``rate``: between the last rate that kept the promise and the first that broke it,
    by interpolation.
    """

    rate: float
    trials: tuple[Trial, ...]  # by rate

    def is_beyond(self, promise: float) -> bool:
        """Return whether the promise was kept at every rate that was tried: ``rate`` is the highest of them."""
        return all(trial.attainment >= promise for trial in self.trials)

    def words(self, promise: float) -> str:
        """Beyond the rates that were tried nothing is known."""
        if self.is_beyond(promise):
            return f">{self.rate:.2f}"
        return f"{self.rate:.2f}" if self.rate else f"<{self.trials[0].rate:.2f}"


def find_capacity(
    attainment_at: Callable[[float], float], promise: float, first_rate: float, precision: float, most_runs: int = 16
) -> FoundCapacity:
    """Bracket the capacity from ``first_rate`` on, then halve the bracket until it is ``precision`` (relative) wide.

    ``attainment_at(rate)`` should fall with the rate. If the promise is broken at every rate that was tried, the
    capacity is 0.
    """
    trials: dict[float, float] = {}
    for rate in _rates(trials, promise, first_rate, precision):
        if len(trials) == most_runs:
            break
        trials[rate] = attainment_at(rate)
    return crossing([Trial(rate, attainment) for rate, attainment in trials.items()], promise)


def find_between(
    attainment_at: Callable[[float], float], promise: float, lowest: float, highest: float, precision: float
) -> FoundCapacity:
    """Halve the range between two rates until it is ``precision`` (relative) wide; neither is passed."""
    trials = {lowest: attainment_at(lowest)}
    if trials[lowest] >= promise and highest > lowest:
        trials[highest] = attainment_at(highest)
    while True:
        kept, broken = _bracket(trials, promise)
        if kept is None or broken is None or broken <= kept * (1 + precision):
            return crossing([Trial(rate, attainment) for rate, attainment in trials.items()], promise)
        middle = sqrt(kept * broken)
        trials[middle] = attainment_at(middle)


def crossing(trials: Iterable[Trial], promise: float) -> FoundCapacity:
    """The capacity that trials at any rates tell of: 0 if none kept the promise, the highest rate if all did."""
    at = {trial.rate: trial.attainment for trial in trials}
    ordered = tuple(Trial(rate, at[rate]) for rate in sorted(at))
    kept, broken = _bracket(at, promise)
    if kept is None or broken is None:
        return FoundCapacity(kept or 0.0, ordered)
    return FoundCapacity(kept + (broken - kept) * (at[kept] - promise) / (at[kept] - at[broken]), ordered)


def _rates(trials: dict[float, float], promise: float, first_rate: float, precision: float) -> Iterator[float]:
    """The next rate to try, given those tried before."""
    yield first_rate
    while True:
        kept, broken = _bracket(trials, promise)
        if broken is None:
            yield max(trials) * FACTOR
        elif kept is None:
            yield min(trials) / FACTOR
        elif broken > kept * (1 + precision):
            yield (kept + broken) / 2
        else:
            return


def _bracket(trials: dict[float, float], promise: float) -> tuple[float | None, float | None]:
    """The highest rate that kept the promise below the lowest that broke it, and the latter."""
    broken = min((rate for rate, attainment in trials.items() if attainment < promise), default=None)
    kept = [rate for rate, attainment in trials.items() if attainment >= promise and (broken is None or rate < broken)]
    return max(kept, default=None), broken
