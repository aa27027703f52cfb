"""One service of an engine: its queue, its costs, and the numbers of it by which gateways decide."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

import msgspec

from engines.adapters.places import AdapterSizes
from engines.costs.learning import LearntCost
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.step_cost import StepCost, StepLoad
from engines.engine_request import EngineRequest, ForetoldPrefill
from engines.images.form import ImageForm
from engines.memory.block_pool import BlockPool
from engines.scheduling.demand import EarlyEnds
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.slack import is_beyond_repair
from engines.speculation.model_speculation import DraftModel
from engines.speculation.speculates import Speculates
from kvtransfer.layout import block_bytes
from kvtransfer.tiers.tier import TierIndex
from mesh.wire.requests import RequestSpec
from mesh.wire.status import Demand, ServiceStatus
from mesh.wire.transfers import KVShape, MemoryRef


class Decodes(msgspec.Struct, frozen=True):
    """Decodes of one service. Infinite where nothing decodes whose promise can be kept: ``paid_until``, the first
    moment at which one of those is late unless it has its next token by then, and ``tpot_slo_s``, the tightest promise.
    """

    num_requests: int
    step_s: float  # predicted, of their next step
    paid_until: float
    tpot_slo_s: float


@dataclass(slots=True)
class Service:
    """One service on one engine: its queue, its costs, and what its model fixes."""

    queue: ServiceQueue
    shape: KVShape
    memory: MemoryRef | None
    eos_token_ids: frozenset[int]
    context_limit: int
    cost: LearntCost
    is_leaving: bool = False  # it takes nothing new, and goes once it is empty
    pauses: bool = False  # while it leaves: its weights go before its requests
    paused_at: float | None = None  # since when its weights are gone; None: they are here
    early: EarlyEnds = field(default_factory=EarlyEnds)
    weight_bytes: int = 0  # 0: not known
    vocab_size: int | None = None  # token ids are below it; None: not known
    identity: str = ""  # of the model (`engines.models.identity`); empty: not known
    ttft_s: float = -inf  # that it promises; not known
    pools: bool = False  # it makes vectors of prompts, and no tokens
    whole_prompts: bool = False  # each is computed in one iteration
    images: ImageForm | None = None  # how it sees images; None: it sees none
    place_bytes: int = 0  # of memory for each of its LoRA adapters at least
    factor_dtype: str = ""  # of their weights; empty: that of KV
    speculation: Speculates | None = None  # None: its decodes are given no drafts
    tiers: TierIndex | None = None  # of its blocks; None: no tier keeps them
    name: str = field(init=False)
    pool: BlockPool = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.pool = self.queue.service, self.queue.pool

    @property
    def adapter_sizes(self) -> AdapterSizes:
        """Return what its LoRA adapters take."""
        return AdapterSizes(self.factor_dtype or self.shape.dtype, self.place_bytes)

    def as_draft_model(self) -> DraftModel | None:
        """Return what it is to those for which it drafts; None if it is about to go."""
        if self.is_leaving or self.is_paused:
            return None
        return DraftModel(self.name, self.pool, self.cost.current, self.context_limit)

    def limit_of(self, spec: RequestSpec) -> int:
        """Return the tokens, of prompt and answer, that a request may have. The token that a vector comes with is none
        of the model's context.
        """
        return self.context_limit + (spec.pooling is not None)

    def prefill_s(self, request: EngineRequest) -> float:
        """Predicted seconds to compute what is left of a sequence's prompt."""
        cost, num_tokens, num_computed = self.cost.current.prefill, len(request.tokens), request.num_computed
        foretold = request.foretold
        if foretold is None or not (
            foretold.cost is cost and foretold.num_tokens == num_tokens and foretold.num_computed == num_computed
        ):
            seconds = prefill_s(cost, num_tokens - num_computed, num_computed)
            request.foretold = foretold = ForetoldPrefill(cost, num_tokens, num_computed, seconds)
        return foretold.seconds

    def ended(self, request: EngineRequest, now: float) -> None:
        """Note that an answer is whole, be it earlier than it was expected."""
        if request.spec.expected:
            self.early.ended(request, self.decode_step_s(), now)

    def chunk_s(self, num_tokens: int, num_before: int) -> float:
        """Predicted seconds of a prefill of ``num_tokens`` after ``num_before``."""
        return prefill_s(self.cost.current.prefill, num_tokens, num_before)

    def step_cost(self) -> StepCost:
        """The cost of steps, as predictions are now."""
        return self.cost.current

    @property
    def is_paused(self) -> bool:
        """Return whether nothing of it is computed, as its weights are gone."""
        return self.paused_at is not None

    def decoding(self) -> list[EngineRequest]:
        """Everything that decodes now."""
        return [] if self.paused_at is not None else self.queue.decoding()

    def decode_step_s(self) -> float:
        """Predicted seconds of the next decode step of everything that decodes now; 0 if nothing does."""
        decoding = self.decoding()
        context = sum([len(request.tokens) for request in decoding])
        return decode_step_s(self.cost.current.decode, len(decoding), context)

    def alone_s(self) -> float:
        """Predicted seconds of the shortest decode step that there is."""
        return decode_step_s(self.cost.current.decode, 1, 1)

    def decodes(self, now: float) -> "Decodes":
        """Return what a status tells of everything that decodes now. Whose promise is lost keeps nobody else away."""
        count, context, paid_until, tpot_slo_s = 0, 0, inf, inf
        cost = self.cost.current.decode
        others: Sequence[EngineRequest] = () if self.paused_at is not None else self.queue.running
        if (steady := self.queue.steady) is not None:
            told = steady.summary(now, cost)
            count, context = told.num_requests, told.context_tokens
            paid_until, tpot_slo_s = told.paid_until, told.tpot_slo_s
            others = others[count:]
        late_at = now + decode_step_s(cost, 1, 1) if others else now
        for request in others:
            # `EngineRequest.is_decoding` and `slack_s`, spelt out: they are asked for in every status
            spec, num_tokens = request.spec, len(request.tokens)
            num_generated = num_tokens - len(spec.prompt)
            if num_tokens - request.num_computed != 1 or num_generated <= 0:
                continue
            first, promise_s = request.first_token_at, spec.slo_tpot_s
            until = (now if first is None else first) + num_generated * promise_s
            count += 1
            context += num_tokens
            if until < late_at and not request.is_hopeless:
                alone_s = decode_step_s(cost, 1, num_tokens)
                request.is_hopeless = is_beyond_repair(until - now - alone_s, promise_s, request.num_left, alone_s)
            if request.is_hopeless:
                continue
            if until < paid_until:  # noqa: PLR1730 - calls of `min` would take longer than all the rest
                paid_until = until
            if promise_s < tpot_slo_s:  # noqa: PLR1730
                tpot_slo_s = promise_s
        return Decodes(count, decode_step_s(cost, count, context), paid_until, tpot_slo_s)

    def growth_elsewhere(self, services: Iterable["Service"]) -> int:
        """Blocks of this one that the next tokens of the engine's other ``services`` may take: it goes by pages."""
        others = [service.queue for service in services if service is not self]
        return self.pool.slots * sum([-(-queue.growth_blocks // queue.pool.slots) for queue in others])

    def most_rows(self, num_tokens: int) -> int:
        """Return how many requests of so many tokens memory holds: admission keeps a block free for each of them."""
        return self.pool.num_blocks // (1 + self.pool.blocks_for(num_tokens))

    def learn(self, load: StepLoad, measured_s: float) -> None:
        """Correct later predictions by what a step took."""
        self.cost.observe(load, measured_s)

    def status(
        self,
        freeness: float,
        demand: Demand | None = None,
        tier_room: tuple[int, float] = (0, 0.0),
        pull_cost: tuple[float, float] = (0.0, 0.0),
        line_s: float | None = None,
        num_decoding: int = 0,
    ) -> ServiceStatus:
        cost, queue = self.step_cost(), self.queue
        pool, fillers, num_free = queue.pool, queue.fillers, queue.num_free
        drafts_checked, tokens_drafted, drafts_accepted = (
            (0, 0, 0) if self.speculation is None else self.speculation.counts
        )
        tier_tokens, tier_token_s = tier_room
        pull_s, pull_token_s = pull_cost
        return ServiceStatus(
            queue.service,
            pool.num_blocks,
            num_free,
            pool.block_size,
            cost.prefill,
            cost.decode,
            self.cost.prefill_error,
            self.cost.decode_error,
            len(queue.running) + len(queue.loading),
            freeness,
            self.is_leaving,
            demand,
            self.weight_bytes,
            0 if queue.slice_tokens is None else queue.growth_blocks,
            self._held_by_priority() if 2 * num_free < pool.num_blocks else [],
            self.identity,
            queue.num_not_begun,
            len(fillers.waiting),
            len(fillers.running),
            drafts_checked,
            tokens_drafted,
            drafts_accepted,
            tier_tokens,
            tier_token_s,
            self.paused_at is not None,
            pull_s,
            pull_token_s,
            line_s,
            num_decoding,
            block_bytes(self.shape),
        )

    def _held_by_priority(self) -> list[tuple[int, int]]:
        held: dict[int, int] = {}
        for request in self.queue.running:
            priority = request.spec.priority
            held[priority] = held.get(priority, 0) + len(request.blocks)
        return sorted(held.items())


def all_decodes(parts: Sequence[Decodes]) -> Decodes:
    """Add up the decodes of several services, of which one steps at a time."""
    if len(parts) == 1:
        return parts[0]
    return Decodes(
        sum([part.num_requests for part in parts]),
        sum([part.step_s for part in parts]),
        min([part.paid_until for part in parts], default=inf),
        min([part.tpot_slo_s for part in parts], default=inf),
    )


def min_or_none(values: Iterable[float | None]) -> float | None:
    least: float | None = None
    for value in values:
        if value is not None and (least is None or value < least):
            least = value
    return least
