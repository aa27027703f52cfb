"""The local scheduler: which tokens of which requests the next iteration computes.

Iteration-level and on one path: an iteration takes one token of every decoding sequence, then up to a budget of prompt
tokens. Decodes go first come, first served. Prefills go by priority, then in the order that their policy asks for
(`PrefillOrder`). By default those past their TTFT deadline go first, so that a stream of short prompts cannot starve a
long one; then the shortest go. Those that go by deadline may pass each other between two chunks, others never. How
chunks share iterations with decodes is up to each (`PrefillMode`).

Memory goes by priority as well: for a prompt that waits for it, what runs with lower priority loses its blocks, the
least urgent and latest arrived first, if that suffices. With slices, `engines.scheduling.slicing` decides that.

A prefill engine computes one prompt at a time: its time then depends on its length alone and can be predicted
(Tropical). What it happens to decode goes on beside prompts, even beside those that would make decodes wait.

Where a discipline names the phase of an iteration (`engines.scheduling.disciplines`), requests of that phase enter it
in the discipline's order, and none of these rules holds but that of prefill engines.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from engines.engine_request import EngineRequest
from engines.memory.pages import Precedence
from engines.scheduling.batch import Drafting
from engines.scheduling.disciplines.discipline import IterationPhase, Rank, Ranking
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.slack import IterationTime, SlackBudget, in_one_iteration, tightest, tightest_foreseen
from mesh.wire.control import PrefillMode, PrefillOrder, Role


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one scheduler. ``max_running`` sequences hold blocks at a time; an iteration computes up to
    ``chunk_tokens`` prompt tokens; with ``counts_decodes``, tokens of decodes and prompts together.

    Prefills in slack take up to ``slack_margin`` of it, and chunks of ``min_chunk_tokens`` or more.
    """

    max_running: int
    chunk_tokens: int
    slack_margin: float = 0.9
    min_chunk_tokens: int = 32
    slice_tokens: int | None = None  # after so many of its answer a request is kept, moved or offloaded; None: never
    counts_decodes: bool = False


class Share(msgspec.Struct, frozen=True):
    """A request's share of the coming iteration. ``num_tokens`` to be computed, and ``drafts`` of what may follow."""

    request: EngineRequest
    num_tokens: int
    drafts: Sequence[int] = ()
    drafting: Drafting | None = None  # how a draft model is to write them, where they are not known


class StepPlan(msgspec.Struct, frozen=True):
    """One iteration. ``entered`` have blocks from now on, ``preempted`` lost theirs and wait again, ``outgrown`` fill
    the pool alone and must end, ``starved`` need a block that transfers or other services hold.
    """

    shares: list[Share]
    entered: list[EngineRequest] = msgspec.field(default_factory=list)
    preempted: list[EngineRequest] = msgspec.field(default_factory=list)
    outgrown: list[EngineRequest] = msgspec.field(default_factory=list)
    starved: list[EngineRequest] = msgspec.field(default_factory=list)


class PrefillForecast(Protocol):
    """What the scheduler of one service needs to foresee, corrected by what steps really took."""

    def prefill_s(self, request: EngineRequest) -> float:
        """Seconds that what is left of a prompt will take, alone."""

    def decodes(self) -> Sequence[EngineRequest]:
        """All that decodes on this engine, of whatever service: an iteration of one makes all of them wait."""

    def decode_round_s(self) -> float:
        """Seconds of one decode step of each service."""

    def iteration_s(self) -> IterationTime:
        """Return the seconds of an iteration of this service's present decodes and some chunks of prompts."""

    def growth_elsewhere(self) -> int:
        """Blocks of this service that the next tokens of the engine's other services may take."""


class LocalScheduler:
    """Plans the iterations of one service of an engine."""

    def __init__(self, limits: Limits, forecast: PrefillForecast) -> None:
        self._limits = limits
        self._forecast = forecast

    def plan(
        self,
        queue: ServiceQueue,
        role: Role,
        now: float,
        phase: IterationPhase | None = None,
        ranking: Ranking | None = None,
        gives_way: bool = False,
    ) -> StepPlan:
        """Decide the next iteration and hold the blocks that it needs. ``phase`` and ``ranking``: of its discipline.
        ``gives_way``: its prompts are not computed beside its decodes now.
        """
        plan = StepPlan([])
        if phase is not None and ranking is not None:
            self._add_phase(queue, role, phase, ranking, plan)
            return plan
        decoding = queue.decoding()
        decodes_wait, num_running = False, len(queue.running)
        if role is not Role.PREFILL:
            decodes_wait = self._decodes_wait(queue, len(decoding) == num_running, now, plan)
        if not decodes_wait:
            is_same = len(queue.running) == num_running and not plan.preempted
            self._add_decodes(queue, decoding if is_same else queue.decoding(), plan)
        if (decodes_wait or not gives_way) and (queue.waiting or len(plan.shares) < len(queue.running)):
            self._add_prefills(queue, role, now, plan, decodes_wait)
        if plan.preempted:
            plan.shares[:] = [share for share in plan.shares if share.request not in plan.preempted]
        return plan

    def _add_phase(
        self, queue: ServiceQueue, role: Role, phase: IterationPhase, ranking: Ranking, plan: StepPlan
    ) -> None:
        if phase is IterationPhase.DECODE:
            self._add_decodes(queue, queue.decoding(), plan, ranking.rank, ranking.members)
        else:
            self._add_prompts(queue, role, plan, ranking)

    def _decodes_wait(self, queue: ServiceQueue, all_decode: bool, now: float, plan: StepPlan) -> bool:
        """Whether the prompt whose turn it is goes before the decodes; if it waited, it is admitted.

        One whose prefix is cached up to its last token is a decode then. ``all_decode``: all that runs.
        """
        if not all_decode:
            return _comes_first(next(one for one in queue.running if not one.is_decoding))
        if not any(map(_comes_first, queue.waiting)):
            return False
        waiting = self._next_waiting(queue, now, plan)
        if waiting is None or not _comes_first(waiting) or not self._admit(queue, waiting, plan):
            return False
        return not waiting.is_decoding

    def _add_decodes(
        self,
        queue: ServiceQueue,
        decoding: list[EngineRequest],
        plan: StepPlan,
        rank: Rank | None = None,
        members: Collection[EngineRequest] | None = None,
    ) -> None:
        preempted = plan.preempted
        if members is not None:
            decoding = [request for request in decoding if request in members]
        if rank is not None and not queue.pool.can_allocate(len(decoding)):
            decoding.sort(key=rank)  # not all of them may find room
        shares, block_size = plan.shares, queue.pool.block_size
        for request in decoding:
            if preempted and request not in queue.running:
                continue
            has_room = len(request.blocks) * block_size > request.num_computed
            if has_room or self._make_room(queue, request, plan, rank):
                shares.append(Share(request, 1))
        if preempted:
            plan.shares[:] = [share for share in plan.shares if share.request not in preempted]

    def _make_room(self, queue: ServiceQueue, request: EngineRequest, plan: StepPlan, rank: Rank | None) -> bool:
        """Hold one more block, for the next token, preempting others if need be; False if it cannot go on now.

        Slices may have been granted of blocks whose offloading is under way: nobody is preempted for what is to come.
        """
        pool = queue.pool
        while not pool.can_allocate(1):
            if queue.offloading:
                return False
            victim = self._victim(queue, rank)
            if victim is None or (victim is request and len(queue.running) == 1):
                fills_pool = pool.blocks_for(request.num_computed + 1) > pool.num_blocks
                (plan.outgrown if fills_pool else plan.starved).append(request)
                return False
            self._preempt(queue, victim, plan)
            if victim is request:
                return False
        request.blocks += pool.allocate(1)
        return True

    @staticmethod
    def _victim(queue: ServiceQueue, rank: Rank | None) -> EngineRequest | None:
        """The one that ranks last, or the least urgent, latest arrived one."""
        candidates = [request for request in queue.running if request not in queue.pinned]
        if rank is not None:
            return max(candidates, key=rank, default=None)
        return min(candidates, key=lambda request: (request.spec.priority, -request.arrived_at), default=None)

    @staticmethod
    def _preempt(queue: ServiceQueue, victim: EngineRequest, plan: StepPlan) -> None:
        queue.preempt(victim)
        plan.preempted.append(victim)

    def _add_prefills(self, queue: ServiceQueue, role: Role, now: float, plan: StepPlan, decodes_wait: bool) -> None:
        left = budget = self._limits.chunk_tokens - self._limits.counts_decodes * len(plan.shares)
        prefilling = [request for request in queue.running if not request.is_decoding]
        slack = self._slack(now) if any(map(_is_in_slack, (*prefilling, *queue.waiting))) else None
        while left > 0:
            if plan.preempted:
                prefilling = [request for request in prefilling if request not in plan.preempted]
            request = self._next(prefilling, queue, now, plan)
            if request is None or (role is not Role.PREFILL and _comes_first(request) != decodes_wait):
                return
            share = self._share(queue, request, left, budget, slack, now, plan)
            if share is None:
                return
            plan.shares.append(share)
            left -= share.num_tokens
            is_alone = role is Role.PREFILL and not request.spec.pooling
            if is_alone or request.prefill_mode is PrefillMode.FORESEEN:
                return

    def _add_prompts(self, queue: ServiceQueue, role: Role, plan: StepPlan, ranking: Ranking) -> None:
        """By rank, whether they have begun or wait; nobody who waits passes one that waits for memory."""
        left = budget = self._limits.chunk_tokens
        for request in self._enterable(queue, ranking, plan):
            share = Share(request, request.share_tokens(left, budget))
            plan.shares.extend([share] if share.num_tokens else [])
            left -= share.num_tokens
            if left <= 0 or not share.num_tokens or (role is Role.PREFILL and not request.spec.pooling):
                return

    def _enterable(self, queue: ServiceQueue, ranking: Ranking, plan: StepPlan) -> Iterator[EngineRequest]:
        """Prompts that may be computed, admitted in turn: who waits has no block."""
        begun = {request for request in queue.running if not request.is_decoding}
        for request in (one for one in ranking.prompts if one not in queue.loading):
            if request in begun:
                begun.remove(request)
            elif not self._has_place(queue, ranking) or not self._admit(queue, request, plan, ranking.rank):
                break
            yield request
        yield from sorted(begun, key=ranking.rank)

    def _has_place(self, queue: ServiceQueue, ranking: Ranking) -> bool:
        """A batch that was formed is as large as it is, and no one passes one that waits to come back."""
        return ranking.members is not None or self._has_places(queue)

    def _next(
        self, prefilling: list[EngineRequest], queue: ServiceQueue, now: float, plan: StepPlan
    ) -> EngineRequest | None:
        """Whose turn it is: those that have begun go on, unless one that waits is due earlier and may pass them."""
        if not prefilling:
            return self._next_waiting(queue, now, plan)
        if not goes_by_deadline(prefilling[0]):
            return prefilling.pop(0)
        first = self.most_urgent(prefilling, now)
        waiting = self._next_waiting(queue, now, plan)
        if waiting is not None and self._may_pass(waiting, first, now) and self._admit(queue, waiting, plan):
            return waiting
        if first in plan.preempted:
            return None
        prefilling.remove(first)
        return first

    def _may_pass(self, waiting: EngineRequest, first: EngineRequest, now: float) -> bool:
        return goes_by_deadline(waiting) and self.urgency(waiting, now) < self.urgency(first, now)

    def _share(
        self,
        queue: ServiceQueue,
        request: EngineRequest,
        left: int,
        budget: int,
        slack: SlackBudget | None,
        now: float,
        plan: StepPlan,
    ) -> Share | None:
        """The chunk that is next of a prompt, which is admitted if it waits; None if it has to wait (on)."""

        def num_tokens() -> int:
            if slack is None or not _is_in_slack(request):
                return request.share_tokens(left, budget)
            return slack.chunk_tokens(request, left, now)

        if request in queue.waiting and not (num_tokens() and self._admit(queue, request, plan)):
            return None
        share = Share(request, num_tokens())
        if slack is not None and share.num_tokens:
            slack.spend(share.num_tokens, request.num_computed)
        return share if share.num_tokens else None

    def _slack(self, now: float) -> SlackBudget:
        forecast, limits = self._forecast, self._limits
        decodes, step_s = forecast.decodes(), forecast.decode_round_s()
        slack = {
            PrefillMode.SLACK: tightest(decodes, now, step_s).part(limits.slack_margin),
            PrefillMode.FORESEEN: in_one_iteration(decodes, tightest_foreseen(decodes, now, step_s)),
        }
        return SlackBudget(forecast.iteration_s(), slack, limits.min_chunk_tokens)

    def _next_waiting(self, queue: ServiceQueue, now: float, plan: StepPlan) -> EngineRequest | None:
        """The most urgent one, if any may be admitted."""
        if plan.preempted or not queue.waiting or not self._has_places(queue):
            return None
        return self.most_urgent(queue.waiting, now)

    def _has_places(self, queue: ServiceQueue) -> bool:
        return queue.num_taken < self._limits.max_running and not queue.is_claimed

    def has_room(self, queue: ServiceQueue, request: EngineRequest) -> bool:
        """Return whether a waiting sequence would be admitted, whatever others hold of its prefix."""
        num_blocks = queue.pool.blocks_for(len(request.tokens)) + self._headroom(queue)
        return self._has_places(queue) and queue.pool.can_allocate(num_blocks)

    def _admit(self, queue: ServiceQueue, request: EngineRequest, plan: StepPlan, rank: Rank | None = None) -> bool:
        """Move a waiting sequence to those that run, with blocks for its tokens; False if it and a slice do not fit."""
        pool, whole = queue.pool, queue.pool.blocks_for(len(request.tokens))
        request.take_prefix(pool)
        missing = whole - len(request.blocks)

        def has_room(granted: int | None) -> bool:
            growth = 0 if granted is None else pool.blocks_for(granted) - whole
            return pool.can_admit(missing + growth + self._headroom(queue), request, precedence(request, rank))

        fits, granted = queue.fitting_end(request, has_room, self._headroom(queue))
        is_ranked = rank is not None or queue.slice_tokens is not None  # then others say who gives way
        if not (fits or (not is_ranked and self._yield_to(queue, request, missing, plan) and has_room(None))):
            request.release_blocks(pool)
            return False
        request.blocks += pool.allocate(missing)
        request.granted = granted
        queue.waiting.remove(request)
        queue.running.append(request)
        plan.entered.append(request)
        return True

    def _yield_to(self, queue: ServiceQueue, request: EngineRequest, missing: int, plan: StepPlan) -> bool:
        """Preempt what is less urgent than a request that wants so many blocks, if that can be enough."""
        less_urgent = [
            one
            for one in queue.running
            if one.spec.priority < request.spec.priority and one.transfer is None and one not in queue.pinned
        ]
        less_urgent.sort(key=lambda one: (one.spec.priority, -one.arrived_at))
        wanted, victims = missing + self._headroom(queue) - queue.pool.num_free, list[EngineRequest]()
        while queue.pool.num_freed([one.blocks for one in victims]) + len(victims) < wanted:  # each was to grow by one
            if len(victims) == len(less_urgent):
                return False
            victims.append(less_urgent[len(victims)])
        for victim in victims:
            self._preempt(queue, victim, plan)
        return True

    def _headroom(self, queue: ServiceQueue) -> int:
        """Blocks left for running sequences to grow into, lest the newcomer is preempted at once."""
        return queue.growth_blocks + self._forecast.growth_elsewhere()

    def most_urgent(self, requests: list[EngineRequest], now: float, rank: Rank | None = None) -> EngineRequest:
        """The one whose prefill should start first, by its rank if there is one; there is at least one sequence."""
        if rank is not None:
            return min(requests, key=rank)
        return min(requests, key=lambda request: self.urgency(request, now)) if len(requests) > 1 else requests[0]

    def due_at(self, request: EngineRequest, left_s: float, now: float) -> float:
        """Return when a prefill is due, for an order by deadline. ``left_s``: predicted, of what is left of it.

        One that cannot be in time is given its promise once more: those in time pass it until then, but not for ever.
        What has begun its answer and lost its KV is due at once: its client waits already.
        """
        if request.num_generated:
            return now + left_s
        if now + left_s <= request.ttft_deadline:
            return request.ttft_deadline
        return max(request.ttft_deadline, request.came_at) + request.patience_s + left_s

    def urgency(self, request: EngineRequest, now: float) -> tuple[int, bool, float, float]:
        order, arrived_at = request.prefill_order, request.arrived_at
        if order is PrefillOrder.DEADLINE:
            left_s = self._forecast.prefill_s(request)
            return (-request.spec.priority, False, self.due_at(request, left_s, now), arrived_at)
        by_arrival = order is PrefillOrder.ARRIVAL or (now > request.starves_at and order is not PrefillOrder.LENGTH)
        size = arrived_at if by_arrival else self._forecast.prefill_s(request)
        return (-request.spec.priority, not by_arrival, size, arrived_at)


def precedence(request: EngineRequest, rank: Rank | None) -> Precedence:
    """Among all of an engine that want memory."""
    return () if rank is None else rank(request), -request.spec.priority, request.arrived_at, request.id


def _comes_first(request: EngineRequest) -> bool:
    return request.prefill_mode is PrefillMode.FIRST


def goes_by_deadline(request: EngineRequest) -> bool:
    return request.prefill_order is PrefillOrder.DEADLINE


def _is_in_slack(request: EngineRequest) -> bool:
    return request.prefill_mode in (PrefillMode.SLACK, PrefillMode.FORESEEN)
