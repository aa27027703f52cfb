"""Arrival processes of a given mean rate, and traces made of them and a pool of lengths."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from random import Random

from simulation.loads.trace_request import TraceRequest

LEAST_CV, MOST_CV = 0.01, 100.0  # of gamma's gaps
BURST_PERIOD_S = 40.0
BURST_FRACTION = 0.25  # of each period, at its start
BURST_FACTOR = 3.0  # times the mean rate during a burst


class Process(StrEnum):
    POISSON = "poisson"
    GAMMA = "gamma"
    BURST = "burst"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A process of arrivals. ``cv`` is the coefficient of variation of gamma's gaps: 1 is Poisson, more is burstier."""

    rate: float  # requests a second, on average
    process: Process = Process.POISSON
    cv: float = 2.0

    def times(self, random: Random) -> Iterator[float]:
        """Yield times without end, in ascending order."""
        shape = 1 / self.cv**2 if self.process is Process.GAMMA else 1.0
        place: Callable[[float], float] = _in_bursts if self.process is Process.BURST else lambda time: time
        time = 0.0
        while True:
            if self.process is Process.CONSTANT:
                time += 1 / self.rate
            else:
                time += random.gammavariate(shape, 1 / (shape * self.rate))
            yield place(time)


def parse_cv(text: str) -> float:
    """Parse the variation of gamma's gaps. Raise `ValueError`, saying what would be right."""
    try:
        cv = float(text)
    except ValueError:
        cv = 0.0
    if not LEAST_CV <= cv <= MOST_CV:
        raise ValueError(f"{text!r} does not fit; use a number from {LEAST_CV:g} to {MOST_CV:g}")
    return cv


def _in_bursts(even: float) -> float:
    """When the share of a period's requests that comes by ``even`` at a constant rate has come in bursts."""
    period, within = divmod(even, BURST_PERIOD_S)
    burst_s = BURST_FRACTION * BURST_PERIOD_S
    share_s = burst_s * BURST_FACTOR  # of the even time, squeezed into the burst
    if within < share_s:
        moved = within / BURST_FACTOR
    else:
        moved = burst_s + (within - share_s) * (BURST_PERIOD_S - burst_s) / (BURST_PERIOD_S - share_s)
    return period * BURST_PERIOD_S + moved


def synthesize(
    lengths: Sequence[TraceRequest], arrivals: Arrivals, duration_s: float, random: Random
) -> Iterator[TraceRequest]:
    """Requests with lengths drawn from the pool, until ``duration_s``."""
    for time in takewhile(lambda time: time < duration_s, arrivals.times(random)):
        yield replace(random.choice(lengths), at_s=time)
