"""Decides what of requests without a promise an engine computes: beside decodes, and where it would be idle.

Requests with promises are planned first, as if there were no others. Then a step of decodes alone is filled up, with
decodes and a chunk of a prompt, for a part of what the step is promised to take and does not. The slack that decodes
have saved is not touched: prompts to come want it. While any prompt with a promise waits or runs, nothing is filled.
So fillers yield with the step that runs when one comes. A step of fillers alone is no longer than a part of the
tightest TTFT promise, as whoever comes meanwhile waits for its end.

Fillers hold a part of the memory, and only while some is left over for what may come (`FillerMemory`).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Final

from engines.costs.step_cost import StepLoad
from engines.engine_request import EngineRequest
from engines.scheduling.scheduler import Limits, Share
from engines.scheduling.service import Service
from engines.scheduling.slack import tightest
from engines.standing.standing import Standing
from mesh.wire.control import Role

KEPT_TOKENS: Final = 25  # of slack, in times of the tightest promise of a token, that decodes save before fillers get
PART_AFTER: Final = 0.8  # of what a step leaves, once they have saved that
PART_BEFORE: Final = 0.4  # and until then
TTFT_PART: Final = 0.1  # of the tightest TTFT promise, that a step of fillers alone may take
UNPROMISED_S: Final = 0.1  # that it may take where no service promises one


@dataclass(frozen=True, slots=True)
class FillerMemory:
    """Parts of a KV pool. ``most``: that fillers hold; ``spare``: free beside them when one begins; ``least``: free at
    every step, or fillers lose theirs. What waits for memory, and what runs grows into, is free beside that.
    """

    most: float = 0.5
    spare: float = 0.25
    least: float = 0.125


class Filling:
    """Fills the steps of one engine."""

    def __init__(
        self,
        services: Mapping[str, Service],
        limits: Limits,
        standing: Standing,
        *,
        is_static: bool,
        memory: FillerMemory = FillerMemory(),
    ) -> None:
        """Make one. ``is_static``: nobody joins a batch, so only steps of fillers alone are there."""
        self._services = services
        self._limits = limits
        self._standing = standing
        self._is_static = is_static
        self._memory = memory
        self._turn = 0

    def __repr__(self) -> str:
        return f"<Filling {sum(len(one.queue.fillers) for one in self._services.values())}>"

    @property
    def is_needed(self) -> bool:
        """Return whether there are any."""
        for service in self._services.values():
            if service.queue.fillers.waiting or service.queue.fillers.running:
                return True
        return False

    # --- memory -------------------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Let fillers give up what others want, their own service's first. No step runs."""
        services = list(self._services.values())
        holding = [one for one in services if one.queue.fillers.running]
        for service in services if holding else ():
            wanted = self._wanted(service, self._memory.least)
            for holder in sorted(holding, key=lambda one: one is not service):
                holder.queue.fillers.give_way(holder.pool, _has_free(service, wanted))

    def _wanted(self, service: Service, part: float) -> int:
        """Blocks that are to be free in a service's pool, or can be had."""
        queue, pool = service.queue, service.pool
        waiting = [*queue.waiting, *queue.unreserved]
        coming = sum([pool.blocks_for(len(request.tokens) + 1) for request in waiting])
        return min(pool.num_blocks, int(part * pool.num_blocks) + coming + queue.growth_blocks)

    # --- steps --------------------------------------------------------------------------------------------------------

    def beside(self, service: Service, shares: Sequence[Share], now: float) -> list[Share]:
        """Return what a step of decodes with promises computes beside them; nothing if it is no such step."""
        if not service.queue.fillers or self._is_static or self._standing.role is Role.PREFILL or self._prompts_come():
            return []
        decodes = [request for one in self._services.values() for request in one.decoding()]
        round_s = sum([one.decode_step_s() for one in self._services.values()])
        spare_s = self._spare_s(decodes, round_s, now)
        requests = [share.request for share in shares]
        base = StepLoad((), len(requests), sum([len(request.tokens) for request in requests]))
        plan = _Plan(service, self._limits, base, service.decode_step_s() + spare_s)
        return self._fill(plan) if spare_s > 0 else []

    def _prompts_come(self) -> bool:
        """Whether any prompt with a promise waits or runs."""
        queues = [service.queue for service in self._services.values()]
        return any(
            queue.waiting or queue.unreserved or queue.offloaded or len(queue.decoding()) < len(queue.running)
            for queue in queues
        )

    def _spare_s(self, decodes: Sequence[EngineRequest], round_s: float, now: float) -> float:
        """Return by how much the next step may be longer."""
        if not decodes:
            return self._alone_s()
        promise_s = min([request.spec.slo_tpot_s for request in decodes])
        saved_s = tightest(decodes, now, round_s).slack_s
        if saved_s < 0:
            return 0.0
        part = PART_AFTER if saved_s >= KEPT_TOKENS * promise_s else PART_BEFORE
        return min(part * max(0.0, promise_s - round_s), self._alone_s())

    def _alone_s(self) -> float:
        """Return how long whoever comes may wait for the step that runs."""
        ttft_s = min([one.ttft_s for one in self._services.values() if one.ttft_s > 0], default=0.0)
        return TTFT_PART * ttft_s if 0 < ttft_s < inf else UNPROMISED_S

    def alone(self) -> tuple[Service, list[Share]] | None:
        """Return a step of fillers alone; None: there are none that can go on. Nothing else can be computed now."""
        for service in self._in_turn():
            plan = _Plan(service, self._limits, StepLoad((), 0, 0), self._alone_s(), is_alone=True)
            if shares := self._fill(plan):
                return service, shares
        return None

    def _in_turn(self) -> Iterator[Service]:
        """Services that have any, another one first each time."""
        services = [service for service in self._services.values() if service.queue.fillers]
        self._turn += 1
        first = self._turn % max(1, len(services))
        yield from services[first:]
        yield from services[:first]

    def _fill(self, plan: "_Plan") -> list[Share]:
        """Decodes, the oldest first; then prompts, those that have begun first."""
        running = plan.service.queue.fillers.running
        plan.add_decodes([one for one in running if one.is_decoding])
        for request in [one for one in running if not one.is_decoding]:
            if not plan.add_prompt(request):
                return plan.shares
        fillers = plan.service.queue.fillers
        while fillers.waiting and plan.has_tokens and self._admit(plan.service, fillers.waiting[0]):
            if not plan.add_prompt(fillers.running[-1]):
                break
        return plan.shares

    def _admit(self, service: Service, request: EngineRequest) -> bool:
        """Let one that waits hold blocks for its tokens; False if there is no room."""
        queue, pool = service.queue, service.pool
        if len(queue.fillers.running) + queue.num_taken >= self._limits.max_running:
            return False
        request.take_prefix(pool)
        missing = pool.blocks_for(len(request.tokens) + 1) - len(request.blocks)
        held = queue.fillers.num_blocks(pool) + len(request.blocks) + missing
        has_part = held <= self._memory.most * pool.num_blocks or not self._is_used()
        if not has_part or not pool.can_allocate(missing + self._kept(service)):
            request.release_blocks(pool)
            return False
        request.blocks += pool.allocate(missing)
        queue.fillers.waiting.remove(request)
        queue.fillers.running.append(request)
        return True

    def _kept(self, service: Service) -> int:
        """Blocks that are to stay free when one begins. A lone one may have all, or it could never run."""
        if not self._is_used():
            return 0
        return self._wanted(service, self._memory.spare) + len(service.queue.fillers.running)

    def _is_used(self) -> bool:
        queues = [service.queue for service in self._services.values()]
        return any(queue.running or queue.waiting or queue.unreserved or queue.fillers.running for queue in queues)


class _Plan:
    """One step as it is filled. ``base``: what it computes anyway; ``longest_s``: that it may take."""

    def __init__(
        self, service: Service, limits: Limits, base: StepLoad, longest_s: float, *, is_alone: bool = False
    ) -> None:
        self.service = service
        self.shares: list[Share] = []
        self._cost = service.step_cost()
        self._base = base
        self._longest_s = longest_s
        self._min_chunk = limits.min_chunk_tokens
        self._left = self._budget = limits.chunk_tokens - limits.counts_decodes * base.num_decodes
        self._rows = limits.max_running - base.num_decodes
        self._must_go_on = is_alone  # with something, however long that takes

    @property
    def has_tokens(self) -> bool:
        return self._left > 0 and self._rows > 0

    def _takes_s(self, load: StepLoad) -> float:
        return sum(self._cost.parts(load))

    def add_decodes(self, decoding: Sequence[EngineRequest]) -> None:
        """As many as fit, the first ones."""
        decoding = [one for one in decoding if self._has_block(one)][: max(0, self._rows)]
        contexts = list(accumulate([len(one.tokens) for one in decoding], initial=self._base.context_tokens))
        before = self._base.num_decodes
        number = bisect_right(
            range(1, len(decoding) + 1),
            self._longest_s,
            key=lambda count: self._takes_s(StepLoad((), before + count, contexts[count])),
        )
        number = max(number, min(1, len(decoding))) if self._must_go_on else number
        for request in decoding[:number]:
            if len(request.blocks) * self.service.pool.block_size <= request.num_computed:
                request.blocks += self.service.pool.allocate(1)
            self.shares.append(Share(request, 1))
        self._base = StepLoad((), before + number, contexts[number])
        self._rows -= number
        self._must_go_on &= not number

    def _has_block(self, request: EngineRequest) -> bool:
        """Whether there is room for its next token, for as many as there may be."""
        pool, most = self.service.pool, len(self.service.queue.fillers.running)
        return len(request.blocks) * pool.block_size > request.num_computed or pool.can_allocate(most)

    def add_prompt(self, request: EngineRequest) -> bool:
        """Add a chunk of a prompt, as long as it fits. Return whether more may follow."""
        if not self.has_tokens:
            return False
        at_most = request.share_tokens(self._left, self._budget)
        least = at_most if request.is_whole else min(self._min_chunk, at_most)
        fitting = bisect_right(range(1, at_most + 1), self._longest_s, key=self._with_chunk(request))
        number = fitting if fitting >= least else least if self._must_go_on else 0
        if not number:
            return False
        self.shares.append(Share(request, number))
        self._base = self._base._replace(chunks=[*self._base.chunks, (number, request.num_computed)])
        self._left -= number
        self._rows -= 1
        self._must_go_on = False
        return number == request.num_uncomputed

    def _with_chunk(self, request: EngineRequest) -> Callable[[int], float]:
        base, before = self._base, request.num_computed
        return lambda size: self._takes_s(base._replace(chunks=[*base.chunks, (size, before)]))


def _has_free(service: Service, wanted: int) -> Callable[[], bool]:
    return lambda: service.pool.num_free >= wanted
