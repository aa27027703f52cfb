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
from engines.scheduling.service import Decodes, Service
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
        requests = [request for request in requests if request.spec.priority > PRIORITY_BATCH]  # no fillers
        standing.seq += 1
        standing.has_news = False
        has_expectations = bool([1 for request in requests if request.spec.expected])
        if has_expectations:
            for service in services:
                service.queue.book()
        of_services = [service.decodes(now) for service in services]
        decodes = Decodes.all_of(of_services)
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
        return EngineStatus(
            seq=standing.seq,
            state=standing.state,
            role=standing.role,
            host=self._settings.host,
            pid=self._settings.pid,
            services=[
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
            num_running=num_running,
            num_waiting=prefills.num_waiting,
            num_tokens=num_tokens,
            prefill_remaining_s=prefills.remaining_s,
            prefill_waiting_s=prefills.waiting_s,
            decode_step_s=decodes.step_s,
            min_slack_s=None if decodes.paid_until == inf else decodes.paid_until - now - decodes.step_s,
            min_tpot_slo_s=None if decodes.tpot_slo_s == inf else decodes.tpot_slo_s,
            foreseen=_foreseen(services, prefills.joining, decodes.step_s, now) if has_expectations else [],
            prefills=prefills.pending,
            pace_s=self._pace.seconds,
            num_role_changes=standing.num_role_changes,
            num_devices=self._settings.num_devices,
            max_running=self._settings.limits.max_running,
            num_reserved=len(arrivals),
            cancelled_total=standing.num_cancelled,
            preemptions_total=standing.num_preempted,
            num_offloaded=num_offloaded,
            slices_kept_total=standing.num_kept,
            slices_moved_total=standing.num_moved,
            slices_offloaded_total=standing.num_offloaded,
            num_migrating_out=0 if departures.is_idle else len(departures.migrating()),
            num_migrating_in=arrivals.num_migrating,
            migrations_total=departures.tally.num_completed,
            migrations_aborted_total=departures.tally.num_aborted,
            last_aborted_migration=departures.tally.last_abort,
            place=standing.place,
            loading=list(self._residency.loading),
            failed_loads=list(self._residency.failed.values()),
            weight_memory=self._settings.weight_memory_bytes,
            metrics_url=self._settings.metrics_url,
            adapters=self._adapters.names(),
            tiers=self._tiering.status(),
            blocks_not_stored_total=self._tiering.num_dropped,
            loads_stopped_total=self._tiering.num_stopped,
            keeps_role=standing.keeps_role,
            prefix_news=self._tiering.held.number,
            staging_memory=self._settings.staging_memory_bytes,
            staging=list(self._residency.staging),
            staged=dict(self._residency.staged),
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
