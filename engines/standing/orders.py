"""Obeys orders about an engine as a whole: its role, its services, its adapters, a plan, or to drain."""

from collections.abc import Mapping

import structlog

from engines.adapters.room import AdapterRoom
from engines.engine_request import EngineRequest
from engines.memory.residency import Residency
from engines.scheduling.disciplines.profile import Lengths
from engines.standing.standing import EngineOrder, Standing
from engines.transfers.moves import Moves
from engines.transfers.outcomes import EngineOutcome
from mesh.wire.adapters import ExpectAdapter, ForgetAdapter
from mesh.wire.control import Announce, Drain, LoadService, SetRole, StageService, UnloadService

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

    def __repr__(self) -> str:
        return f"<EngineOrders of {self._engine}>"

    def obey(self, order: EngineOrder) -> list[EngineOutcome]:
        if not self._standing.hear(order):
            return []
        match order:
            case SetRole():
                for request in self._requests.values():
                    request.stays = False  # it was to decode on an engine of the old role
            case Drain(undo):
                self._moves.is_emptying = not undo
                log.info("serves again" if undo else "drains: takes nothing new", engine=self._engine)
            case Announce(place=place, lengths=lengths):  # seen by gateways: that tells more than what was expected
                seen = {one.service: (max(1, one.prompt), max(1, one.answer)) for one in lengths}
                self._usual |= {service: usual for service, usual in seen.items() if service in place.services}
                return [*self._residency.plan(place.services)]
            case LoadService(service):
                return [*self._residency.load(service)]
            case StageService(service):
                return [*self._residency.stage(service)]
            case UnloadService(service, pauses):
                self._residency.unload(service, pauses=pauses)
            case ExpectAdapter(service, adapter) if service in self._residency.services:
                self._adapters.hint(adapter, service, self._residency.services[service].adapter_sizes)
            case ForgetAdapter(service):
                self._adapters.unload(service)
        return []

    def stop(self) -> None:
        """Take nothing new; what is here moves to other engines if it may and there are any, else it ends here."""
        self._standing.stop()
        self._moves.is_emptying = True
