"""What an engine says of itself, as a whole: its status, and how free it is."""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from engines.engine_request import EngineRequest
from engines.memory.residency import Residency
from engines.scheduling.backlog import Backlog, Step
from engines.scheduling.demand import demand_of
from engines.scheduling.pace import Pace
from engines.settings import EngineSettings
from engines.status import Decodes, Service
from engines.transfers.freeness import IDEAL_SLOWDOWN, free_tokens, freeness, headroom_tokens, in_all
from engines.transfers.handover import Handovers
from mesh.wire.control import EnginePlace, ProcessState, Role
from mesh.wire.status import Demand, EngineStatus


@dataclass(slots=True)
class Standing:
    """What an engine is and what it has done so far: the part of its status that is not worked out.

    ``has_news``: since the last status, something happened that others could not foresee from it. Requests were taken,
    began or ended, a prompt was computed, the role, the state or the services are others. That steps end is no news.
    """

    role: Role
    state: ProcessState = ProcessState.READY
    seq: int = 0  # of the last status
    num_cancelled: int = 0
    num_preempted: int = 0
    num_kept: int = 0  # of ends of slices
    num_moved: int = 0
    num_offloaded: int = 0
    num_role_changes: int = 0
    place: EnginePlace | None = None  # in the newest plan that was announced
    has_news: bool = True


class Account:
    """Reads, changes nothing but the number of the status and what is news."""

    def __init__(
        self,
        settings: EngineSettings,
        standing: Standing,
        residency: Residency,
        backlog: Backlog,
        handovers: Handovers,
        pace: Pace,
    ) -> None:
        self._settings = settings
        self._standing = standing
        self._residency = residency
        self._backlog = backlog
        self._handovers = handovers
        self._pace = pace

    def status(self, requests: Collection[EngineRequest], step: Step | None, now: float) -> EngineStatus:
        """A fresh one, numbered. ``requests``: all that the engine owns."""
        standing = self._standing
        standing.seq += 1
        standing.has_news = False
        services = list(self._residency.services.values())
        has_expectations = bool([request for request in requests if request.spec.expected])
        if has_expectations:
            for service in services:
                service.queue.book()
        decodes = Decodes.all_of([service.decodes(now) for service in services])
        queues = [service.queue for service in services]
        num_running = sum([len(queue.running) for queue in queues])
        num_decoding = decodes.num_requests
        prefills = self._backlog.account(step, now, has_started=num_running > num_decoding)
        departures, arrivals = self._handovers.departures, self._handovers.arrivals
        return EngineStatus(
            seq=standing.seq,
            state=standing.state,
            role=standing.role,
            host=self._settings.host,
            pid=self._settings.pid,
            services=[
                service.status(
                    self.freeness(service, now), _demand(service, requests, now) if has_expectations else None
                )
                for service in services
            ],
            num_running=num_running,
            num_waiting=prefills.num_waiting,
            num_tokens=sum([len(request.tokens) for request in requests])
            + sum([queue.num_unbooked for queue in queues]),
            prefill_remaining_s=prefills.remaining_s,
            prefill_waiting_s=prefills.waiting_s,
            decode_step_s=decodes.step_s,
            min_slack_s=None if decodes.paid_until == inf else decodes.paid_until - now - decodes.step_s,
            min_tpot_slo_s=None if decodes.tpot_slo_s == inf else decodes.tpot_slo_s,
            prefills=prefills.pending,
            pace_s=self._pace.seconds,
            num_role_changes=standing.num_role_changes,
            num_devices=self._settings.num_devices,
            num_reserved=len(arrivals),
            cancelled_total=standing.num_cancelled,
            preemptions_total=standing.num_preempted,
            num_offloaded=sum([queue.num_away for queue in queues]),
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
        )

    def freeness(self, service: Service, now: float) -> float:
        """Of one service here: tokens of head room for each running request."""
        running, capacity = service.queue.running, service.pool.num_blocks * service.pool.block_size
        headroom = 0
        if [request for request in running if request.spec.priority > 0]:
            service.queue.book()
            cost, most_running = service.step_cost().decode, self._settings.limits.max_running
            headroom = headroom_tokens(cost, capacity, running, most_running, IDEAL_SLOWDOWN)
        free = in_all(self.bare_freeness(service, now), len(running))
        return freeness(free - headroom, len(running))

    def bare_freeness(self, service: Service, now: float) -> float:
        """Without head room for high priority."""
        queue, pool = service.queue, service.pool
        head = self.head(service, now)
        free = free_tokens(
            pool.num_blocks * pool.block_size,
            pool.num_held * pool.block_size,
            0 if head is None else len(head.tokens),
            is_emptied=service.is_leaving or self._standing.state is not ProcessState.READY,
        )
        return freeness(free, len(queue.running))

    def head(self, service: Service, now: float) -> EngineRequest | None:
        """Who waits first for memory."""
        queue = service.queue
        waiting = [*queue.waiting, *queue.offloaded] if queue.offloaded else queue.waiting
        return self._residency.schedulers[service.name].most_urgent(waiting, now) if waiting else None


def _demand(service: Service, requests: Collection[EngineRequest], now: float) -> Demand | None:
    """Of those that are to decode here."""
    own = [one for one in requests if one.spec.service == service.name and one.decode_engine is None]
    return demand_of(own, service.pool.block_size, service.early, now, service.alone_s())
