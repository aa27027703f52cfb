"""Computes how free an engine's services are, for requests that may come or go (`engines.transfers.freeness`)."""

from engines.engine_request import EngineRequest
from engines.memory.residency import Residency
from engines.scheduling.service import Service
from engines.settings import EngineSettings
from engines.standing.standing import Standing
from engines.transfers.freeness import IDEAL_SLOWDOWN, free_tokens, freeness, headroom_tokens, in_all
from mesh.wire.control import ProcessState


class Room:
    """Reads, and changes nothing."""

    def __init__(self, settings: EngineSettings, standing: Standing, residency: Residency) -> None:
        self._settings = settings
        self._standing = standing
        self._residency = residency

    def freeness(self, service: Service, now: float) -> float:
        """Return the freeness of one service here: tokens of head room for each running request."""
        running, capacity = service.queue.running, service.pool.num_blocks * service.pool.block_size
        if not [1 for request in running if request.spec.priority > 0]:
            return self.bare_freeness(service, now)
        service.queue.book()
        cost, most_running = service.step_cost().decode, self._settings.limits.max_running
        headroom = headroom_tokens(cost, capacity, running, most_running, IDEAL_SLOWDOWN)
        free = in_all(self.bare_freeness(service, now), len(running))
        return freeness(free - headroom, len(running))

    def bare_freeness(self, service: Service, now: float) -> float:
        """Return the freeness without head room for high priority."""
        queue, pool = service.queue, service.pool
        head = self.head(service, now)
        free = free_tokens(
            pool.num_blocks * pool.block_size,
            (pool.num_blocks - queue.num_free) * pool.block_size,
            0 if head is None else len(head.tokens),
            is_emptied=service.is_leaving or self._standing.state is not ProcessState.READY,
        )
        return freeness(free, len(queue.running))

    def head(self, service: Service, now: float) -> EngineRequest | None:
        """Return who waits first for memory."""
        queue = service.queue
        waiting = [*queue.waiting, *queue.offloaded] if queue.offloaded else queue.waiting
        return self._residency.schedulers[service.name].most_urgent(waiting, now) if waiting else None
