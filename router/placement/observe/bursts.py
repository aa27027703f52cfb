"""Measures how bursty requests are: whether their number in a few seconds varies more than Poisson arrivals explain.

What counts for queues is the index of dispersion: the variance of the number of requests in a window, over its mean. It
is 1 for Poisson arrivals. For a renewal process it is the square of the gaps' coefficient of variation, in windows of
many requests (Cox and Lewis, The Statistical Analysis of Series of Events, 1966, chapter 4). Gaps themselves would not
tell it: those of many bursty clients together look like Poisson's, their numbers do not. Variances are taken from
windows that follow each other (von Neumann, 1941), so that rates that drift do not count as bursts.
"""

from collections.abc import Iterable, Mapping
from math import ceil, floor

from mesh.wire.status import CountSpread

WINDOW_S = 5.0  # at most
WINDOWS_IN_LEAST = 6  # of the shortest time that traffic is looked at
HEARTBEATS_IN_WINDOW = 4.0  # at least: when requests came is known as well as statuses tell
PRIOR_PAIRS = 12.0  # of Poisson arrivals, that what was seen is added to: a few windows tell little
LEAST, MOST = 0.25, 100.0

Spreads = Mapping[str, CountSpread]  # by service


def window_s(shortest_s: float, heartbeat_s: float) -> float:
    """Return the window's seconds for traffic that is looked at every ``shortest_s`` or less often, and told of every
    ``heartbeat_s``.
    """
    return max(min(WINDOW_S, shortest_s / WINDOWS_IN_LEAST), HEARTBEATS_IN_WINDOW * heartbeat_s)


def dispersion(spread: CountSpread) -> float:
    """Return the dispersion in long windows, of a renewal process with gamma gaps that has as much in windows like
    these. 1 as long as nothing is known. Windows of less than a request each count as so many requests.
    """
    if min(spread.arrived, spread.pairs) <= 0:
        return 1.0
    known = min(spread.pairs, spread.arrived)
    excess = known * (spread.squares / spread.arrived - 1) / (PRIOR_PAIRS + known)
    return min(max(1 + excess / part_that_shows(spread.arrived / spread.pairs), LEAST), MOST)


def part_that_shows(mean: float) -> float:
    """Return how much of what is beyond 1 in long windows shows in windows of so many requests on average.

    A fit to simulated gamma gaps, within 0.1 for dispersions of 2 to 8 and means of 0.25 to 64; of stronger bursts
    less shows.
    """
    return (mean + 0.6) / (mean + 2.1)


def added_up(parts: Iterable[Spreads]) -> dict[str, CountSpread]:
    total: dict[str, CountSpread] = {}
    for part in parts:
        for name, one in part.items():
            other = total.get(name, CountSpread())
            total[name] = CountSpread(one.pairs + other.pairs, one.arrived + other.arrived, one.squares + other.squares)
    return total


class Windows:
    """Requests of each service in windows of equal length, from whatever number of gateways.

    What came between two statuses of a gateway is spread evenly over the time between them: numbers vary less by that,
    by an eighth with four heartbeats to a window, by a fiftieth with 25.
    """

    def __init__(self, now: float, length_s: float) -> None:
        self._origin_s, self._length_s = now, length_s
        self._heard_s = now
        self._counts: dict[int, dict[str, float]] = {}

    def __repr__(self) -> str:
        return f"<Windows of {self._length_s} s, {len(self._counts)} of them>"

    def add(self, arrived: Mapping[str, int], from_s: float, until_s: float) -> None:
        """Add what a gateway counted between two of its statuses."""
        self._heard_s = max(self._heard_s, until_s)
        came = {name: number for name, number in arrived.items() if number > 0}
        if not came:
            return
        first, last = self._place(from_s), self._place(until_s)
        for index in range(floor(first), max(ceil(last), floor(first) + 1)):
            part = (min(last, index + 1) - max(first, index)) / (last - first) if last > first else 1.0
            counts = self._counts.setdefault(index, {})
            for name, number in came.items():
                counts[name] = counts.get(name, 0.0) + part * number

    def spreads(self, from_s: float, until_s: float) -> dict[str, CountSpread]:
        """Return the spreads of the pairs of which the first window begins then. A pair across a change of rates is one
        of before it.

        The last windows are left out as long as gateways may have more to tell of them.
        """
        first = ceil(self._place(from_s))
        complete = floor(self._place(self._heard_s) - 0.5)  # windows with smaller indices are
        last = min(ceil(self._place(until_s)), complete - 1)
        names = {name for counts in self._counts.values() for name in counts}
        return added_up(self._pair(index, names) for index in range(first, last))

    def forget(self, before_s: float) -> None:
        """Windows that ended before."""
        self._counts = {index: counts for index, counts in self._counts.items() if index + 1 > self._place(before_s)}

    def _place(self, at_s: float) -> float:
        return (at_s - self._origin_s) / self._length_s

    def _pair(self, index: int, names: Iterable[str]) -> dict[str, CountSpread]:
        one, other = self._counts.get(index, {}), self._counts.get(index + 1, {})
        return {name: _spread(one.get(name, 0.0), other.get(name, 0.0)) for name in names}


def _spread(one: float, other: float) -> CountSpread:
    return CountSpread(1, (one + other) / 2, (one - other) ** 2 / 2)
