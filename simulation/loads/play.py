"""Plays a load: which request arrives next, by itself or because an answer has ended.

The load generator's `Driver` plays the same loads with tasks of its own. A request has the same number in both: that of
its conversation, times the most turns that one has, plus its turn.
"""

from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from typing import NamedTuple, Protocol

from simulation.loads.closed_loop import ClosedLoop
from simulation.loads.trace_request import TraceRequest

TURNAROUND_S = 1e-3  # that a client takes at least: one that is refused at once does not ask again at the same time


class DueRequest(NamedTuple):
    """A request that comes at ``at_s``. ``origin``: the number of its conversation's first turn."""

    at_s: float
    number: int
    origin: int
    request: TraceRequest


class LoadPlay(Protocol):
    """A load as the simulator sees it."""

    def arrivals(self) -> Iterator[DueRequest]:
        """Yield, in order of time, what arrives whatever becomes of others."""

    def ended(self, number: int, now: float) -> DueRequest | None:
        """Return what arrives because that request ended."""


class OpenPlay:
    """Requests arrive at their times, in order; later turns of a conversation after the answer before them."""

    def __init__(self, requests: Iterable[TraceRequest], most_turns: int = 1) -> None:
        self._requests = requests
        self._turns = _Turns(most_turns)

    def arrivals(self) -> Iterator[DueRequest]:
        for index, request in enumerate(self._requests):
            yield self._turns.begin(index, request.at_s, request)

    def ended(self, number: int, now: float) -> DueRequest | None:
        return self._turns.next(number, now)


class ClosedPlay:
    """Clients ask again when they have been answered."""

    def __init__(self, loop: ClosedLoop) -> None:
        self._loop = loop
        self._turns = _Turns(loop.most_turns)
        self._ahead = enumerate(loop.requests if loop.duration_s is None else cycle(loop.requests))

    def arrivals(self) -> Iterator[DueRequest]:
        first = (self._due(0.0, *found) for found in islice(self._ahead, self._loop.num_clients))
        yield from sorted(arrival for arrival in first if arrival is not None)

    def ended(self, number: int, now: float) -> DueRequest | None:
        return self._turns.next(number, now) or self._free(now + TURNAROUND_S)

    def _free(self, now: float) -> DueRequest | None:
        """A client takes what comes next, if it is not too late."""
        found = next(self._ahead, None)
        return None if found is None else self._due(now, *found)

    def _due(self, now: float, index: int, request: TraceRequest) -> DueRequest | None:
        at_s = now + request.think_s
        if self._loop.duration_s is not None and at_s >= self._loop.duration_s:
            return None
        return self._turns.begin(index, at_s, request)


def most_turns(requests: Iterable[TraceRequest]) -> int:
    """The most turns that a conversation among them has."""
    return max((1 + len(request.then) for request in requests), default=1)


class _Turns:
    """Conversations under way. ``most`` is what the turns of one are numbered by."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ahead: dict[int, Iterator[TraceRequest]] = {}  # turns to come, by the number of the one that is open

    def begin(self, index: int, at_s: float, request: TraceRequest) -> DueRequest:
        number = index * self._most
        if request.then:
            self._ahead[number] = iter(request.then)
        return DueRequest(at_s, number, number, request)

    def next(self, number: int, now: float) -> DueRequest | None:
        turns = self._ahead.pop(number, None)
        request = next(turns, None) if turns is not None else None
        if turns is None or request is None:
            return None
        self._ahead[number + 1] = turns
        origin = number + 1 - (number + 1) % self._most
        return DueRequest(max(request.at_s, now + request.think_s), number + 1, origin, request)
