"""Where requests go when an engine is emptied: to the engines with most room, a few at a time."""

from collections import Counter

from engines.handover import Handovers
from engines.sequence import Sequence
from engines.status import Service
from mesh.messages import EngineStatus, ProcessState, Role

MOST_AT_A_TIME = 4
RETRY_S = 0.5  # after an engine refused, or did not answer


class Evacuation:
    """Knows the other engines by their statuses. ``is_on``: this engine is to be emptied."""

    def __init__(self, handovers: Handovers, headroom_blocks: int) -> None:
        self.is_on = False
        self._handovers = handovers
        self._headroom_blocks = headroom_blocks
        self._peers: dict[str, EngineStatus] = {}
        self._avoided: dict[str, float] = {}  # until when

    def observe(self, engine: str, status: EngineStatus) -> None:
        self._peers[engine] = status

    def lose(self, engine: str) -> None:
        self._peers.pop(engine, None)

    def failed(self, engine: str, now: float) -> None:
        """A migration there was aborted."""
        self._avoided[engine] = now + RETRY_S

    def next_retry(self) -> float | None:
        """When an engine that was avoided may be tried again."""
        return min(self._avoided.values(), default=None)

    def has_destinations(self, service: Service) -> bool:
        """Whether another engine could take a request of that service, if it had room."""
        return any(_serves(status, service.name) for status in self._peers.values())

    def destination(self, service: Service, request: Sequence, now: float) -> str | None:
        """The engine with most free blocks, of those that have enough; prefill engines only if no other has."""
        self._avoided = {engine: until for engine, until in self._avoided.items() if until > now}
        under_way = self._handovers.migrating_out()
        if len(under_way) >= MOST_AT_A_TIME:
            return None
        promised: Counter[str] = Counter()
        for out in under_way:
            if out.service is service:
                promised[out.machine.peer] += self._num_blocks(service, out.request)
        room = {
            engine: _num_free_blocks(status, service.name) - promised[engine]
            for engine, status in self._peers.items()
            if status.state is ProcessState.READY and engine not in self._avoided
        }
        wanted = self._num_blocks(service, request)
        fitting = [engine for engine, num_free in room.items() if num_free >= wanted]
        return max(fitting, key=lambda engine: (self._is_for_decodes(engine), room[engine], engine), default=None)

    def _num_blocks(self, service: Service, request: Sequence) -> int:
        return service.pool.blocks_for(len(request.tokens)) + self._headroom_blocks

    def _is_for_decodes(self, engine: str) -> bool:
        return self._peers[engine].role is not Role.PREFILL


def _num_free_blocks(status: EngineStatus, service: str) -> int:
    """Beyond what its running requests may take for their next tokens."""
    return next(
        (one.num_free_blocks - status.num_running for one in status.services if one.name == service),
        0,
    )


def _serves(status: EngineStatus, service: str) -> bool:
    return status.state is ProcessState.READY and any(one.name == service for one in status.services)
