"""KV of requests that run no more for now, in host memory: how much of it there is, and how long copies take."""

from dataclasses import dataclass, field

from engines.engine_request import EngineRequest

COPY_BYTES_PER_S = 10e9  # until copies have shown it
KEPT = 7 / 8  # of what was known, when a copy ends


@dataclass(slots=True)
class Offloading:
    """Keeps up to ``capacity_bytes`` in host memory. Each request that is offloaded has a ticket; no ticket is used
    twice.
    """

    capacity_bytes: int
    num_bytes: int = 0
    _byte_s: float = 1 / COPY_BYTES_PER_S
    _num_tickets: int = 0
    _offloaded: dict[int, tuple[EngineRequest, int]] = field(default_factory=dict)

    def can_hold(self, num_bytes: int) -> bool:
        return self.num_bytes + num_bytes <= self.capacity_bytes

    def open(self, request: EngineRequest, num_bytes: int) -> int:
        """Take room for a request's KV; returns its ticket."""
        self._num_tickets += 1
        self._offloaded[self._num_tickets] = request, num_bytes
        self.num_bytes += num_bytes
        return self._num_tickets

    def ticket_of(self, request: EngineRequest) -> int:
        """Raise KeyError if it has none."""
        for ticket, (offloaded, _) in self._offloaded.items():
            if offloaded is request:
                return ticket
        raise KeyError(request.id)

    def request(self, ticket: int) -> EngineRequest:
        return self._offloaded[ticket][0]

    def close(self, ticket: int) -> None:
        """Free the room of a ticket."""
        self.num_bytes -= self._offloaded.pop(ticket)[1]

    def copied(self, num_bytes: int, elapsed_s: float) -> None:
        """Note that so many bytes took so long, their wait for other copies included."""
        if num_bytes:
            self._byte_s = KEPT * self._byte_s + (1 - KEPT) * elapsed_s / num_bytes

    def copy_s(self, num_bytes: int) -> float:
        """Return the predicted seconds of a copy."""
        return self._byte_s * num_bytes

    def requests(self) -> list[EngineRequest]:
        return [request for request, _ in self._offloaded.values()]

    def check_invariants(self) -> None:
        """Raise AssertionError unless room is counted right and bounded, and nobody has two tickets."""
        assert self.num_bytes == sum(num_bytes for _, num_bytes in self._offloaded.values()), (
            "offloaded bytes are miscounted"
        )
        assert self.num_bytes <= self.capacity_bytes, "more is offloaded than there is room for"
        requests = self.requests()
        assert len(set(requests)) == len(requests), "a request has two tickets"
