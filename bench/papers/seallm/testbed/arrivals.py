"""When requests come: patterns of many sources, such as the functions of a trace, dealt out to services.

A source has a rate in each of a few windows and a coefficient of variation of its gaps. Requests of a source are a
renewal process with gamma gaps in the time that its rate stretches and squeezes. The windows of a source span the whole
run, however long it is, so a pattern is played at any rate and over any time.

Azure Functions (a row an invocation: ``arrival_s``, ``function``): a source is a function, its rate in a window the
number of its invocations, the variation that of all gaps of the file. ServeGen (a row a client and window:
``window_start_s``, ``rate_rps``, ``cv``): a source is a client. Without a file, rates are drawn.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import sqrt
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

from simulation.loads.rows import Row, TraceError, csv_rows, open_text

NUM_WINDOWS = 12
WARM_UP = 50  # requests before the first
AZURE, SERVEGEN = ("arrival_s", "function"), ("client", "window_start_s", "rate_rps", "cv")
DRAWN_SOURCES, DRAWN_SKEW, DRAWN_SPREAD, DRAWN_CV = 32, 0.8, 1.0, 1.9


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
    """Read the sources of a file, the busiest first. Raise `TraceError` if they cannot be read."""
    try:
        with open_text(path) as file:
            rows = list(csv_rows(path, file))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
    if not rows:
        raise TraceError(f"{path}: no row follows the columns")
    if all(rows[0].has(column) for column in AZURE):
        sources = _azure(rows)
    elif all(rows[0].has(column) for column in SERVEGEN):
        sources = _servegen(rows)
    else:
        known = " or ".join(", ".join(columns) for columns in (AZURE, SERVEGEN))
        raise TraceError(f"{path}:1: no known pattern of arrivals: want the columns {known}")
    return sorted(sources, key=lambda source: -source.weight)


def _azure(rows: Sequence[Row]) -> list[Source]:
    times = sorted((row.seconds("arrival_s"), str(row.get("function"))) for row in rows)
    first, last = times[0][0], times[-1][0]
    window_s = (last - first) / NUM_WINDOWS or 1.0
    counts: dict[str, list[int]] = defaultdict(lambda: [0] * NUM_WINDOWS)
    for at_s, function in times:
        counts[function][min(int((at_s - first) / window_s), NUM_WINDOWS - 1)] += 1
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(times)]
    cv = pstdev(gaps) / fmean(gaps) if gaps and last > first else 1.0
    return [Source(tuple(map(float, count)), max(1.0, cv)) for count in counts.values()]


def _servegen(rows: Sequence[Row]) -> list[Source]:
    """Begin with a window in the middle of the file; the variation of a client is that of its windows, by rate."""
    windows = sorted({row.seconds("window_start_s") for row in rows})
    start = (len(windows) - NUM_WINDOWS) // 2 if len(windows) > NUM_WINDOWS else 0
    index_of = {window: index for index, window in enumerate(windows[start : start + NUM_WINDOWS])}
    rates: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(index_of))
    variance: dict[str, float] = defaultdict(float)
    for row in rows:
        index, client = index_of.get(row.seconds("window_start_s")), str(row.get("client"))
        if index is not None:
            rates[client][index] = rate = row.seconds("rate_rps")
            variance[client] += rate * row.seconds("cv") ** 2
    busy = {client: of_client for client, of_client in rates.items() if any(of_client)}
    return [Source(tuple(own), sqrt(variance[client] / sum(own)) or 1.0) for client, own in busy.items()]


def drawn_sources(random: Random) -> list[Source]:
    """Draw rates that fall off as a power of the source's number, and differ from window to window."""
    return [
        Source(
            tuple((1 + number) ** -DRAWN_SKEW * random.lognormvariate(0.0, DRAWN_SPREAD) for _ in range(NUM_WINDOWS)),
            DRAWN_CV,
        )
        for number in range(DRAWN_SOURCES)
    ]


def dealt(sources: Sequence[Source], num_services: int) -> list[list[Source]]:
    """Deal sources to services in turn, as the paper does. Raise `TraceError` if they are too few."""
    if len(sources) < num_services:
        raise TraceError(f"{len(sources)} sources of requests are too few for {num_services} services")
    return [list(sources[number::num_services]) for number in range(num_services)]
