"""Obeys orders about an engine as a whole: its role, its services, its adapters, a plan, or to drain."""

from collections.abc import Mapping

import structlog

from engines.adapters.room import AdapterRoom
from engines.engine_request import EngineRequest
from engines.memory.residency import Residency
from engines.scheduling.disciplines.profile import Lengths
from engines.standing import Standing
from engines.transfers.moves import Moves
from engines.transfers.outcomes import EngineOutcome
from mesh.wire.adapters import ExpectAdapter, ForgetAdapter
from mesh.wire.control import Announce, Drain, LoadService, ProcessState, SetRole, StageService, UnloadService

EngineOrder = SetRole | Drain | LoadService | StageService | UnloadService | Announce | ExpectAdapter | ForgetAdapter

log = structlog.get_logger()


class EngineOrders:
    """Obeys. ``requests``: all that the engine owns, by id. ``usual``: the lengths that disciplines expect, by
    service.
    """

    def __init__(
        self,
        engine: str,
        standing: Standing,
        residency: Residency,
        adapters: AdapterRoom,
        moves: Moves,
        requests: Mapping[str, EngineRequest],
        usual: dict[str, Lengths],
    ) -> None:
        self._engine = engine
        self._standing = standing
        self._residency = residency
        self._adapters = adapters
        self._moves = moves
        self._requests = requests
        self._usual = usual
        self._is_stopping = False

    def __repr__(self) -> str:
        return f"<EngineOrders of {self._engine}>"

    def obey(self, order: EngineOrder) -> list[EngineOutcome]:
        match order:
            case SetRole() if self._standing.set_role(order):
                for request in self._requests.values():
                    request.stays = False  # it was to decode on an engine of the old role
            case Drain():
                self._drain_or_undo(order)
            case Announce() if self._standing.hear_plan(order):
                self._learn(order)
                return [*self._residency.plan(order.place.services)]
            case LoadService() | StageService() | UnloadService():
                self._standing.has_news = True
                return self._change_services(order)
            case ExpectAdapter(service, adapter) if service in self._residency.services:
                self._adapters.hint(adapter, service, self._residency.services[service].adapter_sizes)
            case ForgetAdapter(service):
                self._adapters.unload(service)
        return []

    def _learn(self, plan: Announce) -> None:
        """What gateways have seen tells more than what was expected before."""
        self._usual |= {
            one.service: (max(1, one.prompt), max(1, one.answer))
            for one in plan.lengths
            if one.service in plan.place.services
        }

    def _change_services(self, order: LoadService | StageService | UnloadService) -> list[EngineOutcome]:
        match order:
            case LoadService(service):
                return [*self._residency.load(service)]
            case StageService(service):
                return [*self._residency.stage(service)]
            case UnloadService(service, pauses):
                self._residency.unload(service, pauses=pauses)
        return []

    def stop(self) -> None:
        """Take nothing new; what is here moves to other engines if there are any, else it ends here."""
        self._standing.state, self._standing.has_news = ProcessState.DRAINING, True
        self._is_stopping = self._moves.is_emptying = True

    def _drain_or_undo(self, message: Drain) -> None:
        if self._is_stopping:
            return
        self._moves.is_emptying = not message.undo
        self._standing.state = ProcessState.READY if message.undo else ProcessState.DRAINING
        self._standing.has_news = True
        log.info("serves again" if message.undo else "drains: its requests move away", engine=self._engine)
