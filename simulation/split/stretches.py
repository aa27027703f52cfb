"""Cuts the time of one run into stretches that are simulated side by side.

Each has a mesh of its own, which is empty when it begins. So it begins earlier than what it counts, and what arrives in
this lead does not count. It ends when all has ended that counts; until then others arrive as they do in the whole run.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from math import inf

from mesh.errors import UserError
from router.history.records import Record
from simulation.loads.play import DueRequest, LoadPlay

MOST_STRETCHES = 100


@dataclass(frozen=True, slots=True)
class Stretch:
    """It counts what arrives from ``from_s`` on and before ``until_s``. ``num_before``: requests of the whole run that
    arrive before it begins.
    """

    number: int
    begins_s: float
    from_s: float
    until_s: float
    num_before: int
    num_counted: int

    def counts(self, record: Record) -> bool:
        return self.from_s <= record.arrived_s < self.until_s

    def play(self, whole: LoadPlay) -> LoadPlay:
        """Return what arrives from its beginning on, numbered as it is in the whole run."""
        return _Later(whole, self.num_before)


class _Later:
    """An open loop but for its first requests."""

    def __init__(self, whole: LoadPlay, num_before: int) -> None:
        self._whole = whole
        self._num_before = num_before

    def arrivals(self) -> Iterator[DueRequest]:
        return islice(self._whole.arrivals(), self._num_before, None)

    def ended(self, number: int, now: float) -> DueRequest | None:
        return self._whole.ended(number, now)


def cut(arrivals: Sequence[float], number: int, lead_s: float) -> list[Stretch]:
    """Cut a run, by the times at which its requests arrive, into stretches of as many requests each. Requests that
    arrive at the same time stay together.

    Raise `UserError` if that gives more stretches than is sensible, or one that takes less time than its lead.
    """
    if not 2 <= number <= MOST_STRETCHES:
        raise UserError(f"--split: {number} does not fit; a run is cut into 2 to {MOST_STRETCHES} stretches")
    edges = [0.0, *(arrivals[len(arrivals) * index // number] for index in range(1, number))]
    shortest_s = min(later - earlier for earlier, later in pairwise([*edges, arrivals[-1]]))
    if shortest_s < lead_s or shortest_s <= 0:
        raise UserError(
            f"--split: of {number} stretches one would take {shortest_s:.3g} s, less than its lead of {lead_s:g} s; "
            "take fewer stretches, a shorter --lead, or no --split"
        )
    first = [bisect_left(arrivals, edge) for edge in edges]
    begins = [0.0, *(edge - lead_s for edge in edges[1:])]
    return [
        Stretch(index, begins_s, from_s, until_s, bisect_left(arrivals, begins_s), after - at)
        for index, (begins_s, (from_s, until_s), (at, after)) in enumerate(
            zip(begins, pairwise([*edges, inf]), pairwise([*first, len(arrivals)]), strict=True)
        )
    ]
