"""Requests in lines, one a service, phase and level, each in order of a place that changes only when they run."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from engines.scheduling.disciplines.entrant import Entrant

FEW = 32
MOST_MOVES = 4  # a line is put in order anew if every fourth request of it or more has a new place

Line = tuple[str, bool, int]  # service, whether its requests decode, level


class _Entry(NamedTuple):
    before: int  # what is more urgent is more negative
    place: float
    number: int
    entrant: Entrant


class Lines:
    """Heaps with lazy deletion: an entry counts while it is its request's last.

    To put a request, to take it out and to look at the head of a line costs O(log n) comparisons, amortised. An entry
    is pushed once and thrown away once: when it comes to the head, or when most entries of its heap are stale. When a
    batch has run, a line that most of it stood in is put in order as a whole, which costs less: O(1) a request.
    """

    def __init__(self) -> None:
        self._heaps: dict[Line, list[_Entry]] = {}
        self._members: dict[Line, dict[Entrant, _Entry]] = {}  # with the entry that counts
        self._line_of: dict[Entrant, Line] = {}
        self._num_of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._line_of)

    def num_of(self, service: str) -> int:
        """Requests of a service."""
        return self._num_of[service]

    def put(self, entrant: Entrant) -> None:
        """Into the line of its phase and level, and out of the one where it was."""
        self.remove(entrant)
        line = self._line_of[entrant] = _line(entrant)
        self._num_of[line[0]] += 1
        entry = self._members.setdefault(line, {})[entrant] = _entry(entrant)
        heapq.heappush(self._heaps.setdefault(line, []), entry)

    def moved(self, entrants: Iterable[Entrant]) -> None:
        """Do as `put` does, for each of those that are here."""
        stay: dict[Line, list[Entrant]] = defaultdict(list)
        for entrant in entrants:
            line = self._line_of[entrant]
            if line != _line(entrant):
                self.put(entrant)
            elif self._members[line][entrant].place != entrant.place:
                stay[line].append(entrant)
        for line, of_line in stay.items():
            if MOST_MOVES * len(of_line) >= len(self._members[line]):
                self._order(line)
            else:
                for entrant in of_line:
                    self.put(entrant)

    def remove(self, entrant: Entrant) -> None:
        """If it is here."""
        line = self._line_of.pop(entrant, None)
        if line is None:
            return
        self._num_of[line[0]] -= 1
        members = self._members[line]
        del members[entrant]
        if members:
            self._tidy(line)
        else:
            del self._members[line], self._heaps[line]

    def heads(self) -> list[Entrant]:
        """The first of each line."""
        return [self._head(line, heap) for line, heap in self._heaps.items()]

    def prompts(self, service: str) -> list[Iterator[Entrant]]:
        """Yield those of a service that do not decode: each level in order. O(log n) for each one that is taken.

        Nothing may change meanwhile.
        """
        return [self._in_order(line) for line in self._heaps if line[:2] == (service, False)]

    def _in_order(self, line: Line) -> Iterator[Entrant]:
        """A heap's entries are no earlier than those at half their index, so few can be next."""
        heap, members = self._heaps[line], self._members[line]
        next_ones = [(heap[0], 0)]
        while next_ones:
            entry, index = heapq.heappop(next_ones)
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(heap):
                    heapq.heappush(next_ones, (heap[child], child))
            if members.get(entry.entrant) is entry:
                yield entry.entrant

    def _head(self, line: Line, heap: list[_Entry]) -> Entrant:
        members = self._members[line]
        while members.get(heap[0].entrant) is not heap[0]:
            heapq.heappop(heap)
        return heap[0].entrant

    def _tidy(self, line: Line) -> None:
        if len(self._heaps[line]) > 2 * len(self._members[line]) + FEW:
            self._order(line)

    def _order(self, line: Line) -> None:
        """As places are now."""
        members = self._members[line] = {entrant: _entry(entrant) for entrant in self._members[line]}
        heap = self._heaps[line] = list(members.values())
        heapq.heapify(heap)

    def check_invariants(self) -> None:
        """Raise AssertionError unless every request is in one line, and stale entries are few."""
        standing = {entrant: line for line, members in self._members.items() for entrant in members}
        assert standing == self._line_of, "a request stands in no line or in two"
        lag = [entrant for entrant, line in self._line_of.items() if line != _line(entrant)]
        assert not lag, f"a request stands in the line of another phase or level: {lag[0].request.id}"
        assert +self._num_of == Counter(entrant.service for entrant in standing), "a service is miscounted"
        assert self._heaps.keys() == self._members.keys(), "a line is empty"
        for line, members in self._members.items():
            assert len(self._heaps[line]) <= 2 * len(members) + FEW, "stale entries pile up"
            entries = {id(entry) for entry in self._heaps[line]}
            assert all(id(entry) in entries for entry in members.values()), "an entry that counts is lost"


def _line(entrant: Entrant) -> Line:
    request = entrant.request
    return (request.spec.service, request.is_decoding, entrant.level)


def _entry(entrant: Entrant) -> _Entry:
    return _Entry(-entrant.request.spec.priority, entrant.place, entrant.number, entrant)
