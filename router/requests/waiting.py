"""The requests that no engine could take yet, earliest deadline first within a priority."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from router.requests.in_flight_request import InFlightRequest


class WaitingQueue:
    """A request's place is that of its ``order`` when it was added: take it out before its deadline changes."""

    def __init__(self) -> None:
        self._in_flight: list[InFlightRequest] = []

    def __len__(self) -> int:
        return len(self._in_flight)

    def __iter__(self) -> Iterator[InFlightRequest]:
        """Iterate over what is there now, most urgent first; the queue may change meanwhile."""
        return iter(tuple(self._in_flight))

    def __repr__(self) -> str:
        return f"<WaitingQueue {[request.id for request in self._in_flight]}>"

    def add(self, request: InFlightRequest) -> None:
        insort(self._in_flight, request, key=_order)

    def remove(self, request: InFlightRequest) -> None:
        index = bisect_left(self._in_flight, request.order, key=_order)
        if index == len(self._in_flight) or self._in_flight[index] is not request:
            raise ValueError(f"{request.id} does not wait in {self!r}")
        del self._in_flight[index]


def _order(request: InFlightRequest) -> tuple[int, float, int]:
    return request.order
