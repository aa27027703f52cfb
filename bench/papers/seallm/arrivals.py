"""When requests come: the functions of a trace (Azure Functions: ``arrival_s``, ``function``), dealt out to services.

A function has a number of invocations in each of a few windows, and a coefficient of variation of its gaps. Its
requests are a renewal process with gamma gaps in the time that its rate stretches and squeezes. The windows span the
whole run, however long it is, so a pattern is played at any rate and over any time.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

from simulation.loads.rows import TraceError, csv_rows, open_text

NUM_WINDOWS = 12
WARM_UP = 50  # requests before the first


@dataclass(frozen=True, slots=True)
class Source:
    """Sends requests. ``rates``: those of each window, in any unit."""

    rates: tuple[float, ...]
    cv: float

    @property
    def weight(self) -> float:
        return fmean(self.rates)

    def times(self, rate: float, span_s: float, random: Random) -> Iterator[float]:
        """Yield ascending times before ``span_s``, ``rate`` a second on average."""
        bounds = [0.0, *accumulate(self.rates)]
        shape, window_s = 1 / self.cv**2, span_s / len(self.rates)
        unit = bounds[-1] / (rate * span_s)  # of the windows' units, for a request
        place = -WARM_UP * unit  # so that the first gap is one like others
        while place < bounds[-1]:
            if place >= 0:
                index = bisect_right(bounds, place) - 1
                yield (index + (place - bounds[index]) / self.rates[index]) * window_s
            place += unit * random.gammavariate(shape, 1 / shape)


def read_sources(path: Path) -> list[Source]:
    """Read the functions of a file, the busiest first. Raise `TraceError` if they cannot be read."""
    try:
        with open_text(path) as file:
            times = sorted((row.seconds("arrival_s"), str(row.get("function"))) for row in csv_rows(path, file))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
    if len(times) < 2 or times[0][0] == times[-1][0]:
        raise TraceError(f"{path}: all comes at once; want arrivals at several times")
    first, last = times[0][0], times[-1][0]
    counts: dict[str, list[float]] = defaultdict(lambda: [0.0] * NUM_WINDOWS)
    for at_s, function in times:
        counts[function][min(int((at_s - first) / (last - first) * NUM_WINDOWS), NUM_WINDOWS - 1)] += 1
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(times)]
    cv = max(1.0, pstdev(gaps) / fmean(gaps))
    return sorted((Source(tuple(count), cv) for count in counts.values()), key=lambda source: -source.weight)


def dealt(sources: Sequence[Source], num_services: int) -> list[list[Source]]:
    """Deal sources to services in turn, as the paper does. Raise `TraceError` if they are too few."""
    if len(sources) < num_services:
        raise TraceError(f"{len(sources)} sources of requests are too few for {num_services} services")
    return [list(sources[number::num_services]) for number in range(num_services)]
