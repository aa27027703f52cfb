"""Requests in lines, one a service, phase and level, each in order of a place that changes only when they run."""

import heapq
from collections import Counter
from typing import NamedTuple

from engines.disciplines.discipline import Phase
from engines.disciplines.entrant import Entrant

FEW = 32


class Line(NamedTuple):
    service: str
    phase: Phase
    level: int


class _Entry(NamedTuple):
    before: int  # what is more urgent is more negative
    place: float
    came: int
    number: int
    entrant: Entrant


class Lines:
    """Heaps with lazy deletion: an entry counts while its number is its request's last.

    To put a request, to take it out and to look at the head of a line costs O(log n) comparisons, amortised: an entry
    is pushed once and thrown away once, when it comes to the head or when most entries of its heap are stale.
    """

    def __init__(self) -> None:
        self._heaps: dict[Line, list[_Entry]] = {}
        self._last: dict[Entrant, tuple[Line, int]] = {}
        self._num_in_line: Counter[Line] = Counter()
        self._num_of: Counter[str] = Counter()
        self._num_put = 0

    def __len__(self) -> int:
        return len(self._last)

    def num_of(self, service: str) -> int:
        """Requests of a service."""
        return self._num_of[service]

    def put(self, entrant: Entrant) -> None:
        """Into the line of its phase and level, and out of the one where it was."""
        self.remove(entrant)
        line = Line(entrant.service, Phase.of(entrant.sequence), entrant.level)
        self._num_put += 1
        self._last[entrant] = line, self._num_put
        self._num_in_line[line] += 1
        self._num_of[line.service] += 1
        heap = self._heaps.setdefault(line, [])
        heapq.heappush(heap, _Entry(-entrant.priority, entrant.place, entrant.number, self._num_put, entrant))
        self._tidy(line)

    def remove(self, entrant: Entrant) -> None:
        """If it is here."""
        line, _ = self._last.pop(entrant, (None, 0))
        if line is None:
            return
        self._num_of[line.service] -= 1
        self._num_in_line[line] -= 1
        if self._num_in_line[line]:
            self._tidy(line)
        else:
            del self._num_in_line[line], self._heaps[line]

    def _tidy(self, line: Line) -> None:
        heap = self._heaps[line]
        if len(heap) > 2 * self._num_in_line[line] + FEW:
            heap[:] = filter(self._counts, heap)
            heapq.heapify(heap)

    def heads(self) -> list[Entrant]:
        """The first of each line that is not empty."""
        return [self._head(heap) for heap in self._heaps.values()]

    def _head(self, heap: list[_Entry]) -> Entrant:
        while not self._counts(heap[0]):
            heapq.heappop(heap)
        return heap[0].entrant

    def _counts(self, entry: _Entry) -> bool:
        last = self._last.get(entry.entrant)
        return last is not None and last[1] == entry.number

    def check_invariants(self) -> None:
        """Raise AssertionError unless every request is in one line, and stale entries are few."""
        live = {line: list(filter(self._counts, heap)) for line, heap in self._heaps.items()}
        assert {line: len(entries) for line, entries in live.items()} == dict(self._num_in_line), "miscounted"
        assert sum(map(len, live.values())) == len(self._last), "a request stands in no line or in two"
        assert +self._num_of == Counter(entrant.service for entrant in self._last), "a service is miscounted"
        for line, heap in self._heaps.items():
            assert len(heap) <= 2 * self._num_in_line[line] + FEW, "stale entries pile up"
