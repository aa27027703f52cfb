"""KV of requests that run no more for now, in host memory: how much of it there is, and how long copies take."""

from dataclasses import dataclass, field

from engines.engine_request import Sequence

COPY_BYTES_PER_S = 10e9  # until copies have shown it
KEPT = 7 / 8  # of what was known, when a copy ends


@dataclass(slots=True)
class Parking:
    """Up to ``capacity_bytes``. Each request that is parked has a ticket; no ticket is used twice."""

    capacity_bytes: int
    num_bytes: int = 0
    _byte_s: float = 1 / COPY_BYTES_PER_S
    _num_tickets: int = 0
    _parked: dict[int, tuple[Sequence, int]] = field(default_factory=dict)

    def can_hold(self, num_bytes: int) -> bool:
        return self.num_bytes + num_bytes <= self.capacity_bytes

    def open(self, request: Sequence, num_bytes: int) -> int:
        """Take room for a request's KV; returns its ticket."""
        self._num_tickets += 1
        self._parked[self._num_tickets] = request, num_bytes
        self.num_bytes += num_bytes
        return self._num_tickets

    def ticket_of(self, request: Sequence) -> int:
        """Raise KeyError if it has none."""
        for ticket, (parked, _) in self._parked.items():
            if parked is request:
                return ticket
        raise KeyError(request.id)

    def request(self, ticket: int) -> Sequence:
        return self._parked[ticket][0]

    def close(self, ticket: int) -> None:
        """Its room is free."""
        self.num_bytes -= self._parked.pop(ticket)[1]

    def copied(self, num_bytes: int, elapsed_s: float) -> None:
        """So many took so long, their wait for other copies included."""
        if num_bytes:
            self._byte_s = KEPT * self._byte_s + (1 - KEPT) * elapsed_s / num_bytes

    def copy_s(self, num_bytes: int) -> float:
        """Predicted."""
        return self._byte_s * num_bytes

    def requests(self) -> list[Sequence]:
        return [request for request, _ in self._parked.values()]

    def check_invariants(self) -> None:
        """Raise AssertionError unless room is counted right and bounded, and nobody has two tickets."""
        assert self.num_bytes == sum(num_bytes for _, num_bytes in self._parked.values()), "parked bytes are miscounted"
        assert self.num_bytes <= self.capacity_bytes, "more is parked than there is room for"
        requests = self.requests()
        assert len(set(requests)) == len(requests), "a request has two tickets"
