"""An engine's slices: what each request may hold, and what becomes of it when its slice ends (docs/concepts/slices.md).

A request that begins is granted the memory of its tokens and of a slice of its answer, and is admitted only if all that
others were granted stays theirs. So nobody runs out of memory within a slice. Where memory is short slices are shorter,
down to an eighth: then nobody waits for memory that others were granted and do not use yet. Before each iteration,
those whose slice has ended are granted another one, sent to another engine, or offloaded
(`engines.scheduling.slices.ends` says which); then offloaded requests go on, unless one that waits is more urgent. What
can neither stay nor leave goes on without a grant, block by block, as on an engine without slices.

Who is more urgent promises say, or the engine's discipline, if that ranks requests: then nobody gives way to a request
that ranks behind it.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from math import inf

import structlog

from engines.costs.pace import Pace
from engines.effects import Copied, ForgetBlocks, OffloadBlocks, RestoreBlocks
from engines.engine_request import EngineRequest
from engines.scheduling.disciplines.discipline import Discipline, Rank
from engines.scheduling.scheduler import LocalScheduler, precedence
from engines.scheduling.service import Service
from engines.scheduling.slices.ends import End, EndedSlice, EngineOutlook, Fate, Rival, There, ends
from engines.scheduling.slices.offloading import Offloading
from engines.settings import EngineSettings
from engines.standing.standing import Standing
from engines.transfers.outcomes import EngineOutcome
from engines.transfers.outgoing import Departures
from engines.transfers.peers import Peers
from kvtransfer.layout import block_bytes

MOST_LEAVING = 2  # that migrate from here at a time, while others may be sent away by the end of their slice

log = structlog.get_logger(__name__)


class Slicing:
    def __init__(
        self,
        settings: EngineSettings,
        services: Mapping[str, Service],
        schedulers: Mapping[str, LocalScheduler],
        discipline: Discipline,
        departures: Departures,
        peers: Peers,
        standing: Standing,
        pace: Pace,
    ) -> None:
        self._id = settings.id
        self._is_on = settings.limits.slice_tokens is not None
        self._max_running = settings.limits.max_running
        self._offloading = Offloading(settings.offload_bytes)
        self._services = services
        self._schedulers = schedulers
        self._discipline = discipline
        self._departures = departures
        self._peers = peers
        self._standing = standing
        self._pace = pace

    def __repr__(self) -> str:
        return f"<Slicing of {self._id} {self._offloading}>"

    @property
    def is_idle(self) -> bool:
        """No copy is under way."""
        return not any(service.queue.offloading or service.queue.restoring for service in self._services.values())

    def copies(self, request: EngineRequest) -> bool:
        """Return whether its KV is on its way to host memory or back: its blocks must stay."""
        queue = self._services[request.spec.service].queue
        return request in queue.offloading or request in queue.restoring

    # --- slices begin -------------------------------------------------------------------------------------------------

    def begin(self, service: Service, request: EngineRequest) -> None:
        """One that came with its KV is granted a slice if there is room, else what it holds."""
        queue, pool = service.queue, service.pool
        granted = queue.slice_end(request)
        if granted is None:
            return
        has_room = pool.blocks_for(granted) - len(request.blocks) <= self._room(service)
        request.granted = granted if has_room else min(granted, len(request.blocks) * pool.block_size)

    def _room(self, service: Service) -> int:
        """Blocks that nobody holds and nobody was promised; those of requests that are being offloaded are as good as
        free.
        """
        queue = service.queue
        growth = queue.growth_blocks + service.growth_elsewhere(self._services.values())
        coming = sum([service.pool.num_sole(request.blocks) for request in queue.offloading])
        return service.pool.num_free + coming - growth

    # --- slices end ---------------------------------------------------------------------------------------------------

    def before_plan(self, service: Service, now: float) -> list[EngineOutcome]:
        """Deal with slices that have ended, then let offloaded requests go on. The most urgent are kept first; of those
        for whom there is no room, the least urgent leave first.
        """
        if not self._is_on:
            return []
        effects: list[EngineOutcome] = []
        rank = self._discipline.rank(now)
        over = [request for request in service.queue.running if _is_over(request, service)]
        over.sort(key=rank or self._by_slack(service, now))
        crowded = [request for request in over if self._growth(service, request) > self._room(service)]
        for request in (*(one for one in over if one not in crowded), *reversed(crowded)):
            effects += self._end_slice(service, request, rank, now, may_shorten=request in crowded[:1])
        return effects + self._resume(service, rank, now)

    def _by_slack(self, service: Service, now: float) -> Rank:
        step_s = self._step_s(service)
        return lambda one: (-one.spec.priority, inf if one.is_hopeless else one.slack_s(now, step_s))

    def _end_slice(
        self, service: Service, request: EngineRequest, rank: Rank | None, now: float, *, may_shorten: bool
    ) -> list[EngineOutcome]:
        """``may_shorten``: it may stay with a shorter slice, as no more urgent one wants the room."""
        rival = self._rival(service, request, rank, now)
        growth, room = self._growth(service, request), self._room(service)
        if growth <= room and rival is None:
            return self._keep(request, service.queue.slice_end(request))
        fitting = self._fitting_end(service, request) if may_shorten and rival is None else None
        ended = EndedSlice(
            service.pool.num_sole(request.blocks),
            growth,
            request.likely_left,
            inf if request.is_hopeless else request.slack_s(now, self._step_s(service)),
            request.spec.slo_tpot_s,
            self._copy_s(service, request),
        )
        here = self._here(service, request)
        for end in ends(ended, rival, here, self._others(service, request, growth, room)):
            match end.fate:
                case Fate.KEEP:
                    return self._keep(request, service.queue.slice_end(request))
                case Fate.MOVE:
                    return self._move(service, request, end, room, now)
                case Fate.OFFLOAD if fitting is not None:
                    return self._keep(request, fitting)
                case Fate.OFFLOAD:
                    return self._offload(service, request, end, now)
        return [] if fitting is None else self._keep(request, fitting)

    def _growth(self, service: Service, request: EngineRequest) -> int:
        """Blocks that its next slice takes beyond those that it holds."""
        granted = service.queue.slice_end(request)
        assert granted is not None
        return max(0, service.pool.blocks_for(granted) - len(request.blocks))

    def _fitting_end(self, service: Service, request: EngineRequest) -> int | None:
        """Return how many tokens it may have at the end of the longest slice for which there is room, if any has."""
        room = self._room(service) + len(request.blocks)
        ends = service.queue.slice_ends(request)
        return next((end for end in ends if end is not None and service.pool.blocks_for(end) <= room), None)

    def _here(self, service: Service, request: EngineRequest) -> EngineOutlook:
        others = [one for one in service.queue.running if one is not request]
        step_s, num_others = self._step_s(service), len(others)
        mean_left = sum([one.likely_left for one in others]) / max(1, num_others)
        return EngineOutlook(
            self._room(service),
            service.queue.num_taken < self._max_running,
            step_s,
            max(1.0, mean_left / num_others) * step_s if others else inf,
            sum([len(one.blocks) for one in others]) / num_others if others else 0.0,
            self._offloading.can_hold(_num_kept(service, request) * block_bytes(service.shape)),
        )

    def _step_s(self, service: Service) -> float:
        return max(self._pace.seconds, service.decode_step_s())

    def _copy_s(self, service: Service, request: EngineRequest) -> float:
        return self._offloading.copy_s(_num_kept(service, request) * block_bytes(service.shape))

    # --- who else wants memory ----------------------------------------------------------------------------------------

    def _rival(self, service: Service, request: EngineRequest, rank: Rank | None, now: float) -> Rival | None:
        """Return the most urgent request that waits for memory or a place. None if it has room beside ``request``, or
        need not have it sooner: it is less important, too late in any case, or ranks behind it.
        """
        first = self._first(service, rank, now)
        if first is None or first.spec.priority < request.spec.priority:
            return None
        if rank is not None and rank(first) > rank(request):
            return None
        slack_s = self._starts_by(service, first, now) - now
        if slack_s == inf:
            if rank is None:
                return None
            slack_s = 0.0  # it is late already, and by each moment more
        pool, step_s = service.pool, self._step_s(service)
        granted = service.queue.slice_end(first)
        assert granted is not None
        need = pool.blocks_for(granted)
        has_place = service.queue.num_taken < self._max_running
        if has_place and need + self._growth(service, request) <= self._room(service):
            return None
        left_s = service.prefill_s(first) + first.likely_left * step_s
        return Rival(need, left_s, slack_s)

    def _first(self, service: Service, rank: Rank | None, now: float) -> EngineRequest | None:
        """Of those that wait and those that are offloaded: by rank, or by priority, then whose time to begin comes
        first.
        """
        queue = service.queue
        heads = [*queue.offloaded]
        if queue.waiting:
            heads.append(self._schedulers[service.name].most_urgent(queue.waiting, now, rank))
        if not heads:
            return None
        if rank is not None:
            return min(heads, key=rank)
        return min(heads, key=lambda one: (-one.spec.priority, self._starts_by(service, one, now), one.id))

    def _starts_by(self, service: Service, request: EngineRequest, now: float) -> float:
        """When it has to begin, or to go on, to keep its promise; never, if it cannot begin in time any more."""
        if request in service.queue.offloaded and not request.is_hopeless:
            return now + request.slack_s(now, self._step_s(service)) - self._copy_s(service, request)
        if request.num_generated:
            return now
        starts_by = request.ttft_deadline - service.prefill_s(request)
        return starts_by if starts_by >= now else inf

    def _others(self, service: Service, request: EngineRequest, growth: int, room: int) -> Iterator[There]:
        """Engines that could decode it. While it moves, it generates tokens here."""
        leaving = self._departures.leaving()
        if request.transfer is not None or request in service.queue.pinned or len(leaving) >= MOST_LEAVING:
            return
        move_s, step_s = 2 * self._copy_s(service, request), self._step_s(service)
        num_tokens = len(request.tokens) + (round(move_s / step_s) if step_s else 0) + 1
        if service.pool.blocks_for(num_tokens) - len(request.blocks) > room:
            return
        for peer in self._peers.for_service(service, leaving):
            wanted = self._peers.num_blocks(service, request) + growth
            if peer.decodes and peer.freeness > 0 and peer.num_free_blocks >= wanted:
                yield There(peer.id, peer.pace_with(len(request.tokens)), move_s)

    # --- what is done -------------------------------------------------------------------------------------------------

    def _keep(self, request: EngineRequest, granted: int | None) -> list[EngineOutcome]:
        request.granted = granted
        self._standing.num_kept += 1
        return []

    def _move(self, service: Service, request: EngineRequest, end: End, room: int, now: float) -> list[EngineOutcome]:
        """It goes on here while it moves, with a slice that fits."""
        granted = service.queue.slice_end(request)
        assert granted is not None
        request.granted = min(granted, (len(request.blocks) + max(0, room)) * service.pool.block_size)
        self._standing.num_moved += 1
        log.info("moves a request at the end of its slice", request=request.id, to=end.to, why=str(end))
        return self._departures.migrate(service, request, end.to, now, must_leave=True)

    def _offload(self, service: Service, request: EngineRequest, end: End, now: float) -> list[EngineOutcome]:
        effects: list[EngineOutcome] = []
        if request.transfer is not None:
            effects += self._departures.cancel(request.transfer, "offloaded", now)
            request.transfer = None
        blocks = request.blocks[: _num_kept(service, request)]
        ticket = self._offloading.open(request, len(blocks) * block_bytes(service.shape))
        service.queue.running.remove(request)
        service.queue.offloading.append(request)
        self._standing.num_offloaded += 1
        self._standing.has_news = True
        log.info("offloads a request at the end of its slice", request=request.id, why=str(end))
        return [*effects, OffloadBlocks(ticket, service.name, blocks)]

    def offloaded(self, copied: Copied) -> list[EngineOutcome]:
        """The KV of a request is in host memory, or could not be copied: then it is computed again."""
        request = self._offloading.request(copied.ticket)
        service = self._services[request.spec.service]
        queue = service.queue
        queue.offloading.remove(request)
        self._standing.has_news = True
        self._offloading.copied(_num_kept(service, request) * block_bytes(service.shape), copied.elapsed_s)
        if copied.ok and not request.is_over:
            request.offload_blocks(service.pool)
            queue.offloaded.append(request)
            return []
        self._give_up_copy(service, request)
        return self._forget(copied.ticket, service)

    def _resume(self, service: Service, rank: Rank | None, now: float) -> list[EngineOutcome]:
        """Offloaded requests go on while they are the most urgent of all that wait. One without room claims it."""
        queue, effects = service.queue, list[EngineOutcome]()
        queue.is_claimed = False
        while queue.offloaded and queue.num_taken < self._max_running:
            first = self._first(service, rank, now)
            if first not in queue.offloaded:
                break
            restored = self._restore(service, first, rank)
            if restored is None:
                queue.is_claimed = True
                break
            effects += restored
        return effects

    def _restore(self, service: Service, request: EngineRequest, rank: Rank | None) -> list[EngineOutcome] | None:
        """None: there is no room for its next slice. What the prefix cache still has is not copied."""
        queue, pool = service.queue, service.pool
        granted = queue.slice_end(request)
        assert granted is not None
        found = pool.match(request.tokens, request.num_computed, request.spec.prefix_salt)
        growth = queue.growth_blocks + service.growth_elsewhere(self._services.values())
        missing = pool.blocks_for(granted) - len(found)
        if not pool.can_admit(missing + growth, request, precedence(request, rank)):
            pool.release(found)
            return None
        num_kept = _num_kept(service, request)
        request.blocks = found + pool.allocate(pool.blocks_for(len(request.tokens)) - len(found))
        request.granted = granted
        queue.offloaded.remove(request)
        queue.restoring.append(request)
        self._standing.has_news = True
        ticket = self._offloading.ticket_of(request)
        return [RestoreBlocks(ticket, service.name, len(found), request.blocks[len(found) : num_kept])]

    def restored(self, copied: Copied) -> list[EngineOutcome]:
        """The KV of a request is in its blocks, or was lost: then it is computed again."""
        request = self._offloading.request(copied.ticket)
        service = self._services[request.spec.service]
        service.queue.restoring.remove(request)
        self._standing.has_news = True
        if copied.ok and not request.is_over:
            service.queue.running.append(request)
        else:
            self._give_up_copy(service, request)
        return self._forget(copied.ticket, service)

    def _give_up_copy(self, service: Service, request: EngineRequest) -> None:
        """Compute it again. What is over is its owner's to release, now that no copy touches it."""
        if not request.is_over:
            request.release_blocks(service.pool)
            self._standing.num_preempted += 1
            service.queue.waiting.append(request)
            self._discipline.changed(request)

    def request_of(self, copied: Copied) -> EngineRequest:
        """Return whose KV was copied, before that is noted."""
        return self._offloading.request(copied.ticket)

    def ended(self, request: EngineRequest) -> list[EngineOutcome]:
        """Forget a request that was taken out of the queue. A copy that is under way ends first."""
        if self.copies(request) or request not in self._offloading.requests():
            return []
        return self._forget(self._offloading.ticket_of(request), self._services[request.spec.service])

    def _forget(self, ticket: int, service: Service) -> list[EngineOutcome]:
        self._offloading.close(ticket)
        return [ForgetBlocks(ticket, service.name)]

    def check_invariants(self) -> None:
        """Raise AssertionError unless exactly those that are away have room in host memory."""
        self._offloading.check_invariants()
        away = [request for service in self._services.values() for request in service.queue.away]
        assert set(away) == set(self._offloading.requests()), "a request is offloaded without a ticket, or the reverse"
        for service in self._services.values():
            assert not self._is_on or all(
                request.granted is not None for request in chain(service.queue.running, service.queue.restoring)
            ), "a request runs without a bound"


def _is_over(request: EngineRequest, service: Service) -> bool:
    """Whether its slice is, and it is here to be dealt with."""
    granted, pool = request.granted, service.pool
    if granted is None or len(request.tokens) < granted or not request.is_decoding or request in service.queue.pinned:
        return False
    return len(request.tokens) < pool.num_blocks * pool.block_size  # one that fills the pool alone is to end


def _num_kept(service: Service, request: EngineRequest) -> int:
    """Blocks with KV of its tokens."""
    return service.pool.blocks_for(request.num_computed)
