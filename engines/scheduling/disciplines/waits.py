"""Finds who has waited too long: a starvation threshold for each service (SeaLLM, section 4.2).

A request's waiting is its time here less the steps that it took part in. Once that is above the threshold of its
service it goes first until it ends, who has waited longest before the others. So requests that are preferred to it
delay it by its threshold at most, however many of them come.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Generator
from math import inf
from typing import NamedTuple

from engines.scheduling.disciplines.entrant import Entrant

FEW = 32

_Kind = tuple[str, int]  # service, priority


class _Entry(NamedTuple):
    """As of when it was pushed: since then the request may have run, and so have waited less."""

    waits_since: float
    number: int
    entrant: Entrant


class Waits:
    """Keeps how long requests have waited. ``threshold_s`` of a service; infinite: its requests never starve."""

    def __init__(self, threshold_s: Callable[[str], float]) -> None:
        self._threshold_s = threshold_s
        self._entries: dict[_Kind, list[_Entry]] = defaultdict(list)
        self._num_here: dict[_Kind, int] = defaultdict(int)

    def came(self, entrant: Entrant) -> None:
        kind = _kind(entrant)
        entries = self._entries[kind]
        self._num_here[kind] += 1
        heapq.heappush(entries, _entry(entrant))
        if len(entries) > 2 * self._num_here[kind] + FEW:
            entries[:] = [entry for entry in entries if entry.entrant.is_here]
            heapq.heapify(entries)

    def ended(self, entrant: Entrant) -> None:
        self._num_here[_kind(entrant)] -= 1

    def is_starved(self, entrant: Entrant, now: float) -> bool:
        return now - entrant.waits_since > self._threshold_s(entrant.service)

    def starved(self, now: float) -> list[Entrant]:
        """Return, of each service and priority, the one that has waited longest, if that is too long.

        O(log n), amortised over steps.
        """
        longest = [
            self._longest(entries, now - self._threshold_s(kind[0]))
            for kind, entries in self._entries.items()
            if self._num_here[kind]  # a service of which nobody is here may be gone
        ]
        return [entrant for entrant in longest if entrant is not None]

    def starved_of(self, service: str, now: float) -> Generator[Entrant]:
        """All of a service that have waited too long, by priority, those that have waited longest first. O(log n) each.

        Nothing may change before the last one is taken, or the generator is closed.
        """
        since = now - self._threshold_s(service)
        for kind in sorted((kind for kind in self._entries if kind[0] == service), key=lambda kind: -kind[1]):
            entries, taken = self._entries[kind], list[_Entry]()
            try:
                while (entrant := self._longest(entries, since)) is not None:
                    taken.append(heapq.heappop(entries))
                    yield entrant
            finally:
                for entry in taken:
                    heapq.heappush(entries, entry)

    def next_starves_at(self, running: str) -> float:
        """Return when the next one of another service will starve, at the earliest, if only requests of ``running``
        run.
        """
        return min(
            [
                entries[0].waits_since + self._threshold_s(service)
                for (service, _), entries in self._entries.items()
                if entries and service != running
            ],
            default=inf,
        )

    @staticmethod
    def _longest(entries: list[_Entry], since: float) -> Entrant | None:
        """Of those that would have begun to wait before ``since``."""
        while entries and entries[0].waits_since < since:
            head, entrant = entries[0], entries[0].entrant
            if not entrant.is_here:
                heapq.heappop(entries)
            elif head.waits_since < entrant.waits_since:
                heapq.heapreplace(entries, _entry(entrant))
            else:
                return entrant
        return None


def _kind(entrant: Entrant) -> _Kind:
    return entrant.service, entrant.priority


def _entry(entrant: Entrant) -> _Entry:
    return _Entry(entrant.waits_since, entrant.number, entrant)
