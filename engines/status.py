"""Writes an engine's status: all that it says of itself."""

import os
from collections.abc import Collection, Sequence
from math import inf

from engines.adapters.room import AdapterRoom
from engines.costs.pace import Pace
from engines.engine_request import EngineRequest
from engines.memory.residency import Residency
from engines.scheduling.backlog import Backlog, Joining
from engines.scheduling.demand import demand_of
from engines.scheduling.disciplines.discipline import Discipline
from engines.scheduling.foreseen import foreseen_slacks
from engines.scheduling.service import Service, all_decodes
from engines.scheduling.step import Step
from engines.settings import EngineSettings
from engines.standing.standing import Standing
from engines.tiers.tiering import Tiering
from engines.transfers.handover import Handovers
from engines.transfers.room import Room
from mesh.topology.schema import EngineSpec
from mesh.wire.control import ProcessState
from mesh.wire.requests import PRIORITY_BATCH
from mesh.wire.status import Demand, EngineStatus, ForeseenSlack


class StatusWriter:
    """Reads, changes nothing but the number of the status and what is news."""

    def __init__(
        self,
        settings: EngineSettings,
        standing: Standing,
        residency: Residency,
        discipline: Discipline,
        backlog: Backlog,
        handovers: Handovers,
        room: Room,
        pace: Pace,
        adapters: AdapterRoom,
        tiering: Tiering,
    ) -> None:
        self._settings = settings
        self._standing = standing
        self._residency = residency
        self._discipline = discipline
        self._backlog = backlog
        self._handovers = handovers
        self._room = room
        self._pace = pace
        self._adapters = adapters
        self._tiering = tiering

    def status(self, requests: Collection[EngineRequest], step: Step | None, now: float) -> EngineStatus:
        """A fresh one, numbered. ``requests``: all that the engine owns."""
        standing = self._standing
        services = list(self._residency.services.values())
        standing.seq += 1
        standing.has_news = False
        requests = [request for request in requests if request.spec.priority > PRIORITY_BATCH]  # no fillers
        has_expectations = bool([1 for request in requests if request.spec.expected])
        if has_expectations:
            for service in services:
                service.queue.book()
        of_services = [service.decodes(now) for service in services]
        decodes = all_decodes(of_services)
        num_running = num_offloaded = 0
        num_tokens = sum([len(request.tokens) for request in requests])
        for service in services:
            queue = service.queue
            num_running += len(queue.running) + len(queue.loading)
            num_offloaded += queue.num_away
            num_tokens += queue.num_unbooked
        num_decoding = decodes.num_requests
        prefills = self._backlog.account(
            step, now, has_started=num_running > num_decoding, wants_joining=has_expectations
        )
        departures, arrivals, freeness = self._handovers.departures, self._handovers.arrivals, self._room.freeness
        return EngineStatus(  # in the order of its fields: names would take longer than all else here
            standing.seq,
            standing.state,
            standing.role,
            self._settings.host,
            self._settings.pid,
            [
                service.status(
                    freeness(service, now),
                    _demand(service, requests, now) if has_expectations else None,
                    self._tiering.room(service),
                    self._handovers.pulls.told_cost(service, now),
                    self._line_s(service, now),
                    own.num_requests,
                )
                for service, own in zip(services, of_services, strict=True)
            ],
            num_running,
            prefills.num_waiting,
            num_tokens,
            prefills.remaining_s,
            prefills.waiting_s,
            decodes.step_s,
            None if decodes.paid_until == inf else decodes.paid_until - now - decodes.step_s,
            None if decodes.tpot_slo_s == inf else decodes.tpot_slo_s,
            _foreseen(services, prefills.joining, decodes.step_s, now) if has_expectations else [],
            prefills.pending,
            self._pace.seconds,
            standing.num_role_changes,
            self._settings.num_devices,
            self._settings.limits.max_running,
            len(arrivals),
            standing.num_cancelled,
            standing.num_preempted,
            num_offloaded,
            standing.num_kept,
            standing.num_moved,
            standing.num_offloaded,
            0 if departures.is_idle else len(departures.migrating()),
            arrivals.num_migrating,
            departures.tally.num_completed,
            departures.tally.num_aborted,
            departures.tally.last_abort,
            standing.place,
            list(self._residency.loading),
            list(self._residency.failed.values()),
            self._settings.weight_memory_bytes,
            None,  # no error
            self._settings.metrics_url,
            False,  # prompts are computed by promises
            standing.keeps_role,
            0.0,  # a first token waits for no decodes beside its prompt
            self._adapters.names(),
            self._tiering.status(),
            self._tiering.num_dropped,
            self._tiering.num_stopped,
            self._tiering.held.number,
            self._settings.staging_memory_bytes,
            list(self._residency.staging),
            dict(self._residency.staged),
        )

    def _line_s(self, service: Service, now: float) -> float | None:
        goes_before = self._discipline.goes_before(service.name, now)
        return None if goes_before is None else self._backlog.line_s(goes_before)


def _foreseen(
    services: Sequence[Service], joining: Sequence[Joining], step_s: float, now: float
) -> list[ForeseenSlack]:
    """Of the decodes of all services, and of those that will join them."""
    decodes = [request for service in services for request in service.decoding()]
    return foreseen_slacks(decodes, joining, now, step_s)


def _demand(service: Service, requests: Collection[EngineRequest], now: float) -> Demand | None:
    """Of those that are to decode here."""
    own = [one for one in requests if one.spec.service == service.name and one.decode_engine is None]
    return demand_of(own, service.pool.block_size, service.early, now, service.alone_s())


def starting_status(engine: EngineSpec) -> EngineStatus:
    """The status of an engine that loads its services."""
    return EngineStatus(
        seq=0,
        state=ProcessState.STARTING,
        role=engine.role,
        host=engine.host,
        pid=os.getpid(),
        services=[],
        num_running=0,
        num_waiting=0,
        num_tokens=0,
        prefill_remaining_s=0.0,
        prefill_waiting_s=0.0,
        decode_step_s=0.0,
        min_slack_s=None,
    )
