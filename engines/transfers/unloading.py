"""Lets services leave an engine: their requests go, then their memory; where they pause, their weights go first.

A paused service is one whose weights made room for others before its requests had left. What decodes keeps its blocks,
which are apart from weights, and migrates to the first engine that serves it. What does not decode has little to lose:
its gateway gets it back. Nobody waits for ever: after `MOST_PAUSED_S` gateways get back what no engine took.
"""

from engines.adapters.room import AdapterRoom
from engines.effects import DropModel
from engines.engine_request import EngineRequest
from engines.memory.residency import Residency
from engines.requests import OwnedRequests
from engines.scheduling.iterations import Iterations
from engines.scheduling.running_step import RunningStep
from engines.scheduling.service import Service, min_or_none
from engines.standing.standing import Standing
from engines.transfers.handover import Handovers
from engines.transfers.outcomes import EngineOutcome
from mesh.wire.requests import RefusalCode

MOST_PAUSED_S = 60.0


class Unloading:
    """``is_static``: requests run in batches that nobody leaves before their end. These end before a service pauses."""

    def __init__(
        self,
        residency: Residency,
        handovers: Handovers,
        adapters: AdapterRoom,
        standing: Standing,
        running: RunningStep,
        iterations: Iterations,
        requests: OwnedRequests,
        *,
        is_static: bool,
    ) -> None:
        self._residency = residency
        self._handovers = handovers
        self._adapters = adapters
        self._standing = standing
        self._running = running
        self._iterations = iterations
        self._requests = requests
        self._is_static = is_static

    def __repr__(self) -> str:
        return f"<Unloading of {[service.name for service in self._residency.leaving()]}>"

    def next_deadline(self) -> float | None:
        """Return when what no engine took goes back to its gateways."""
        paused = [service for service in self._residency.leaving() if service.queue.running]
        return min_or_none([None if one.paused_at is None else one.paused_at + MOST_PAUSED_S for one in paused])

    def pause(self, now: float) -> list[EngineOutcome]:
        """Pause what is to pause and is not computed just now; let go what is paused."""
        outcomes: list[EngineOutcome] = []
        for service in self._residency.leaving():
            if service.pauses and not self._is_busy(service):
                outcomes += self._pause(service, now)
        return outcomes

    def _is_busy(self, service: Service) -> bool:
        return self._iterations.computes(service) or (self._is_static and bool(service.queue.running))

    def _pause(self, service: Service, now: float) -> list[EngineOutcome]:
        self._requests.settle()
        outcomes: list[EngineOutcome] = []
        for request in self._not_kept(service, now):
            reason = "its service is paused on this engine"
            outcomes += self._requests.give_back(request, RefusalCode.DRAINING, reason, now)
        if self._adapters.is_used(service.name):  # by what a transfer still reads
            return outcomes
        outcomes += self._adapters.forget(service.name)
        if service.is_paused:
            return [*outcomes, *self._iterations.let_paused_move(service, now)]
        self._standing.has_news = True
        return [*outcomes, *self._residency.pause(service, now)]

    def _not_kept(self, service: Service, now: float) -> list[EngineRequest]:
        """What does not decode, what is offloaded, what needs an adapter, and all that has waited for too long."""
        queue, is_over = service.queue, service.paused_at is not None and now >= service.paused_at + MOST_PAUSED_S
        running = [one for one in queue.running if is_over or one.spec.adapter or not one.is_decoding]
        return [*running, *queue.loading, *queue.away]

    def drop(self) -> list[EngineOutcome]:
        """Drop the services that were to leave and are empty."""
        dropped: list[DropModel] = self._residency.drop(self._is_empty)
        if dropped:
            self._standing.has_news = True
        return [*(order for model in dropped for order in self._adapters.forget(model.service)), *dropped]

    def _is_empty(self, service: Service) -> bool:
        """Nobody holds or wants anything of it here."""
        queue, step = service.queue, self._running.step
        owned = queue.not_begun, queue.running, queue.loading, queue.pinned, queue.away, queue.fillers.all()
        is_used = any(owned) or service.pool.is_used or (step is not None and step.computes(service))
        return not is_used and not self._handovers.concern(service.name)
