"""Keeps what an engine knows of the others: their last statuses, and what it has promised to send there."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from engines.costs.linear import decode_step_s
from engines.engine_request import EngineRequest
from engines.scheduling.service import Service
from engines.transfers.freeness import freeness, in_all
from mesh.wire.control import ProcessState, Role
from mesh.wire.status import EngineStatus, ServiceStatus

RETRY_S = 0.5  # after an engine refused, or did not answer


@dataclass(frozen=True, slots=True)
class Peer:
    """Another engine as a place for requests of one service. ``num_free_blocks``: beyond what is on its way there."""

    id: str
    status: EngineStatus
    service: ServiceStatus
    num_free_blocks: int
    freeness: float

    @property
    def decodes(self) -> bool:
        return self.status.role is not Role.PREFILL

    def pace_with(self, num_tokens: int) -> float:
        """Predicted seconds from token to token with one more decode of ``num_tokens``: as of late, and its share."""
        status, service, cost = self.status, self.service, self.service.decode_cost
        context = round(status.num_tokens * service.num_running / max(1, status.num_running))
        more_s = decode_step_s(cost, service.num_running + 1, context + num_tokens) - decode_step_s(
            cost, service.num_running, context
        )
        return max(status.decode_step_s, status.pace_s) + more_s

    @property
    def tightest_tpot_s(self) -> float:
        """The smallest TPOT promise of what decodes there."""
        tightest = self.status.min_tpot_slo_s
        return inf if tightest is None else tightest


class Peers:
    """The other engines that live. ``headroom_blocks``: what a migration reserves beyond its tokens."""

    def __init__(self, headroom_blocks: int) -> None:
        self._headroom_blocks = headroom_blocks
        self._statuses: dict[str, EngineStatus] = {}
        self._avoided: dict[str, float] = {}  # until when

    def observe(self, engine: str, status: EngineStatus) -> None:
        """Take a status, unless a newer one overtook it."""
        known = self._statuses.get(engine)
        if known is None or status.seq >= known.seq:
            self._statuses[engine] = status

    def lose(self, engine: str) -> None:
        self._statuses.pop(engine, None)

    def avoid(self, engine: str, now: float) -> None:
        """Avoid an engine for a moment, as a migration there was aborted."""
        self._avoided[engine] = now + RETRY_S

    def forgive(self, now: float) -> None:
        """Let engines be tried again that were avoided for long enough."""
        if self._avoided:
            self._avoided = {engine: until for engine, until in self._avoided.items() if until > now}

    def next_retry(self) -> float | None:
        """Return when an engine that is avoided may be tried again."""
        return min(self._avoided.values()) if self._avoided else None

    def any_for(self, service: str) -> bool:
        """Return whether another engine could take a request of that service, if it had room."""
        return any(_find(status, service) is not None for status in self._statuses.values())

    def num_blocks(self, service: Service, request: EngineRequest) -> int:
        """Return what the request will need elsewhere, to begin with."""
        return service.pool.blocks_for(len(request.tokens)) + self._headroom_blocks

    def for_service(self, service: Service, leaving: Iterable[tuple[str, EngineRequest]]) -> list[Peer]:
        """Ready engines that have the service; ``leaving``: its requests that migrate from here, and where to."""
        promised: Counter[str] = Counter()
        for to, request in leaving:
            promised[to] += self.num_blocks(service, request)
        peers = []
        for engine, status in self._statuses.items():
            there = _find(status, service.name)
            if there is not None and engine not in self._avoided:
                peers.append(_peer(engine, status, there, promised[engine]))
        return peers


def _find(status: EngineStatus, service: str) -> ServiceStatus | None:
    """Return what the engine says of the service; None if it takes none of its requests."""
    if status.state is not ProcessState.READY:
        return None
    return next((one for one in status.services if one.name == service and not one.is_leaving), None)


def _peer(engine: str, status: EngineStatus, service: ServiceStatus, promised: int) -> Peer:
    """Its running requests may take a block each for their next tokens, or all that their slices grant them."""
    num_free = service.num_free_blocks - max(service.num_running, service.growth_blocks) - promised
    free_tokens = in_all(service.freeness, service.num_running) - promised * service.block_size
    return Peer(engine, status, service, num_free, freeness(free_tokens, service.num_running))
