"""The requests that no engine could take yet, earliest deadline first within a priority."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from router.requests.in_flight_request import Flight


class WaitingQueue:
    """A flight's place is that of its ``order`` when it was added: take it out before its deadline changes."""

    def __init__(self) -> None:
        self._flights: list[Flight] = []

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        """Over what is there now, most urgent first; the queue may change meanwhile."""
        return iter(tuple(self._flights))

    def __repr__(self) -> str:
        return f"<WaitingQueue {[flight.id for flight in self._flights]}>"

    def add(self, flight: Flight) -> None:
        insort(self._flights, flight, key=_order)

    def remove(self, flight: Flight) -> None:
        index = bisect_left(self._flights, flight.order, key=_order)
        if index == len(self._flights) or self._flights[index] is not flight:
            raise ValueError(f"{flight.id} does not wait in {self!r}")
        del self._flights[index]


def _order(flight: Flight) -> tuple[int, float, int]:
    return flight.order
