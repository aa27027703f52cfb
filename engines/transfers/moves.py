"""Moves an engine's requests to other engines: by orders, drains, services that are unloaded, and the rules.

Which and where to, the `Rescheduler` says; how, the transfers of `Departures`. What decodes migrates. What has not
begun has nothing to take along: if it is to leave, its gateway gets it back.
"""

from collections.abc import Collection
from typing import Final

import structlog

from engines.engine_request import EngineRequest
from engines.memory.residency import Residency
from engines.requests import OwnedRequests
from engines.scheduling.backlog import Backlog
from engines.scheduling.running_step import RunningStep
from engines.scheduling.service import Service
from engines.settings import EngineSettings
from engines.standing.standing import Standing
from engines.transfers.handover import Handovers
from engines.transfers.outcomes import EngineOutcome
from engines.transfers.peers import Peers
from engines.transfers.rescheduling import OwnEngine, Rescheduler, Withdrawal
from engines.transfers.room import Room
from mesh.wire.control import Migrate, Role
from mesh.wire.requests import Recall, RefusalCode
from mesh.wire.status import EngineStatus

log = structlog.get_logger(__name__)


class Moves:
    """Decides which requests leave the engine."""

    def __init__(
        self,
        settings: EngineSettings,
        residency: Residency,
        backlog: Backlog,
        handovers: Handovers,
        requests: OwnedRequests,
        room: Room,
        peers: Peers,
        running: RunningStep,
        standing: Standing,
    ) -> None:
        self._settings = settings
        self._residency = residency
        self._backlog = backlog
        self._departures = handovers.departures
        self._requests = requests
        self._peers = peers
        self._standing = standing
        here = OwnEngine(
            settings.id,
            residency.services,
            self._movable,
            self._departures.leaving,
            room.freeness,
            room.bare_freeness,
            room.head,
            lambda now: backlog.by_due(running.step, now),
            self._may_withdraw,
            self._departures.costs,
        )
        self._rescheduler = Rescheduler(
            here, self._peers, settings.rescheduling, migrates_on_drain=settings.migrates_on_drain
        )
        self.has_rules: Final = settings.rescheduling is not None  # a request may leave that need not
        self.must_leave: Final = self._rescheduler.must_leave

    def __repr__(self) -> str:
        return f"<Moves of {self._settings.id}{' emptying it' * self.is_emptying}>"

    # --- what others say ----------------------------------------------------------------------------------------------

    def observe(self, process: str, status: EngineStatus, now: float) -> bool:
        """Take another engine's status. Return whether to look for moves now."""
        return self._rescheduler.observe(process, status, now)

    def find_peer(self, process: str) -> None:
        """A process is there, whether it was lost or is new."""
        self._departures.find_peer(process)

    def lose_peer(self, process: str) -> None:
        self._peers.lose(process)

    # --- whether anything is to leave ---------------------------------------------------------------------------------

    @property
    def is_emptying(self) -> bool:
        """Return whether all requests are to leave."""
        return self._rescheduler.is_emptying

    @is_emptying.setter
    def is_emptying(self, is_emptying: bool) -> None:
        self._rescheduler.is_emptying = is_emptying

    @property
    def services(self) -> Collection[str]:
        """Return the names of the services that are here."""
        return self._residency.services.keys()

    def next_retry(self) -> float | None:
        """Return when an engine may be tried again that did not take what must leave."""
        retry = self._peers.next_retry()
        if retry is None or not self.must_leave():
            return None
        return retry if any(map(self._movable, self._residency.services.values())) else None

    # --- moves --------------------------------------------------------------------------------------------------------

    def empty(self, role: Role, now: float) -> list[EngineOutcome]:
        """Let go what must leave, as much of it as can now."""
        return [*self._send_back(now), *self.give_away(role, now)]

    def give_away(self, role: Role, now: float) -> list[EngineOutcome]:
        """Migrate what had better run elsewhere, or must."""
        self._requests.settle()
        effects: list[EngineOutcome] = []
        while (move := self._rescheduler.next_move(role, now)) is not None:
            if isinstance(move, Withdrawal):
                log.info("gives a request back", request=move.request.id, reason=move.reason)
                effects += self._requests.give_back(move.request, RefusalCode.LATE, move.reason, now)
                continue
            log.info("migrates a request", request=move.request.id, to=move.to, reason=move.reason)
            effects += self._departures.migrate(
                move.service, move.request, move.to, now, move.min_freeness, must_leave=move.must_leave
            )
        return effects

    def migrate(self, message: Migrate, now: float) -> list[EngineOutcome]:
        """Begin a migration that somebody asked for, if the request can move."""
        request = self._requests.by_id.get(message.request)
        obstacle = self._obstacle(message, request)
        if request is None or obstacle is not None:
            self._departures.tally.aborted(message.request, message.to, obstacle or "it is not here")
            self._standing.has_news = True
            return []
        log.info("migrates a request", request=request.id, to=message.to, reason=message.reason)
        self._requests.settle()
        return self._departures.migrate(self._residency.services[request.spec.service], request, message.to, now)

    def give_back_unbegun(self, message: Recall, now: float) -> list[EngineOutcome]:
        """Give a request back that has not begun, as its gateway has a better engine for it."""
        request = self._requests.by_id.get(message.request)
        if request is None or request.epoch > message.epoch or request.num_generated:
            return []
        if request not in self._backlog.not_started(self._residency.services[request.spec.service]):
            return []
        return [*self._requests.give_back(request, RefusalCode.RECALLED, "another engine suits it better", now)]

    def _obstacle(self, message: Migrate, request: EngineRequest | None) -> str | None:
        """Why a request cannot migrate; None if it can."""
        if request is None:
            return "it is not here"
        if message.to == self._settings.id:
            return "it is there already"
        if request.transfer is not None:
            return "it is on its way already"
        if request in self._residency.services[request.spec.service].queue.away:
            return "it is offloaded"
        return None if self._is_movable(request) else "it does not decode now"

    def _is_movable(self, request: EngineRequest) -> bool:
        queue = self._residency.services[request.spec.service].queue
        idle = request.transfer is None and request not in queue.pinned and not self._settings.scheduling.is_static
        return idle and request.is_decoding and request in queue.running

    def _movable(self, service: Service) -> list[EngineRequest]:
        return [request for request in service.queue.running if self._is_movable(request)]

    def _may_withdraw(self, request: EngineRequest) -> bool:
        """Whether it has not begun, and is in no batch or slice that its gateway has planned."""
        is_planned = request.batch > 0 or request.slice_tokens is not None or request.is_filler
        return not is_planned and request in self._backlog.not_started(self._residency.services[request.spec.service])

    def _send_back(self, now: float) -> list[EngineOutcome]:
        """What is to leave and has not begun here is for the gateways to send elsewhere."""
        reason = "the engine is drained" if self.is_emptying else "the service is unloaded"
        leaving = list(self._residency.services.values()) if self.is_emptying else self._residency.leaving()
        effects: list[EngineOutcome] = []
        for service in leaving:
            may_go = service.pauses or self._peers.any_for(service.name)
            waiting = self._backlog.not_started(service) if may_go else ()
            for request in [*waiting, *service.queue.fillers.all()]:
                effects += self._requests.give_back(request, RefusalCode.DRAINING, reason, now)
        return effects
