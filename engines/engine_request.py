"""A request as its engine holds it: tokens, how many of them are computed, and the blocks where their KV lies.

There is no "prefill" and no "decode" state: a sequence with one uncomputed token, sampled earlier, is decoding;
anything else is prefilling. Preemption, prefix hits, transfers that arrive in part and continuations only change how
much is computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from engines.memory.block_digests import root_of
from engines.memory.block_pool import BlockPool
from engines.memory.runs import Run
from engines.scheduling.batch import Chunk, Drafting, Draw
from engines.speculation.drafter import Drafter
from engines.speculation.model_drafter import ModelDrafter
from mesh.wire.control import PrefillMode, PrefillOrder
from mesh.wire.requests import PRIORITY_BATCH, Brought, Delta, Epoch, FinishReason, PrefixAt, RequestSpec, TokenLogprobs
from mesh.wire.status import PrefillCost

MOST_LATE = 10  # promises of a first token, after which a prompt is computed whatever that breaks
MOST_RESENT = 64  # tokens whose log-probabilities are kept after they were delivered: 20 of each take 3 kB


class ForetoldPrefill(NamedTuple):
    """The predicted time of a prefill, and what it was predicted from: many ask for it between two changes."""

    cost: PrefillCost
    num_tokens: int
    num_computed: int
    seconds: float


@dataclass(slots=True, eq=False)
class EngineRequest:
    """A request on one engine. ``arrived_at`` and ``first_token_at`` are on this engine's clock, whatever engine they
    happened on.
    """

    spec: RequestSpec
    epoch: Epoch
    arrived_at: float
    eos_token_ids: frozenset[int]
    context_limit: int
    tokens: list[int]  # prompt, then generated
    num_delivered: int  # generated tokens that need not be sent (again)
    prefill_mode: PrefillMode = PrefillMode.CHUNKED
    prefill_order: PrefillOrder = PrefillOrder.URGENCY
    first_token_at: float | None = None
    num_computed: int = 0
    num_cached: int = 0  # prompt tokens that are not computed here: found, loaded or pulled
    brought: Brought | None = None  # of those, what was loaded or pulled since it lost its blocks
    blocks: list[int] = field(default_factory=list)
    decode_engine: str | None = None  # hand over there after the prefill
    transfer: str | None = None  # id of the transfer that hands it over
    has_delivered: bool = False  # a token from here
    came_at: float = 0.0  # to this engine
    slice_tokens: int | None = None  # that it may generate here
    stays: bool = False  # its gateway counts on it decoding here, even if the engine only prefills
    granted: int | None = None  # tokens, prompt and answer, for which it may hold blocks; None: not bounded
    service_ttft_s: float = -inf  # what its service promises, whatever the request asks for; not known
    is_hopeless: bool = False  # its TPOT promise: it stays late on average even if it decodes alone
    batch: int = 0  # that it came in, counted from 1; 0: it came alone
    uses_prefixes: bool = True  # of others that begin alike
    prefix_at: PrefixAt | None = None  # from where it may be pulled
    has_asked_tiers: bool = False  # for what KV tiers hold of it, since it lost its blocks
    finish: FinishReason | None = None  # that its gateway was told
    is_over: bool = False  # ended here; its blocks go as soon as nothing touches them
    published: Run | None = None  # the full blocks that others can find
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # of the last tokens, if they are wanted
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    is_whole: bool = False  # its prompt is computed in one iteration: every token attends to all
    vector: bytes | None = None  # what a request that is pooled came to
    drafter: Drafter | ModelDrafter | None = None  # once it may speculate
    forced: Sequence[int] = ()  # tokens that its grammar forces after those it has, as far as they are known
    foretold: "ForetoldPrefill | None" = None  # of its prompt, when it was asked for last
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.spec.id

    @classmethod
    def of(
        cls,
        spec: RequestSpec,
        epoch: Epoch,
        now: float,
        eos_token_ids: frozenset[int],
        context_limit: int,
        service_ttft_s: float = -inf,
    ) -> "EngineRequest":
        """A request as submitted; ``spec.generated`` is known to its gateway."""
        first, tokens = spec.first_token_age_s, list(spec.prompt)
        tokens += spec.generated
        return cls(
            spec,
            epoch,
            now - spec.age_s,
            eos_token_ids,
            context_limit,
            tokens,
            len(spec.generated),
            first_token_at=None if first is None else now - first,
            came_at=now,
            service_ttft_s=service_ttft_s,
        )

    @property
    def is_filler(self) -> bool:
        return self.spec.priority <= PRIORITY_BATCH  # `RequestSpec.is_filler`, spelt out: it is asked for often

    @property
    def num_prompt(self) -> int:
        return len(self.spec.prompt)

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - len(self.spec.prompt)

    @property
    def num_uncomputed(self) -> int:
        return len(self.tokens) - self.num_computed

    @property
    def num_left(self) -> int:
        """Return how many tokens may still be generated."""
        return min(self.spec.sampling.max_tokens - self.num_generated, self.context_limit - len(self.tokens))

    @property
    def expected_left(self) -> int:
        """Return how many tokens are expected to be generated yet, one at least."""
        num_generated = self.num_generated
        return max(1, min(self.num_left, self.spec.answer_tokens(num_generated) - num_generated))

    @property
    def least_left(self) -> int:
        """Return how many tokens will hardly be the last ones of its answer, one at least."""
        num_generated = self.num_generated
        return max(1, min(self.num_left, self.spec.least_tokens(num_generated) - num_generated))

    @property
    def num_left_here(self) -> int:
        """Return how many it may draw on this engine."""
        if self.slice_tokens is None:
            return self.num_left
        return min(self.num_left, self.slice_tokens - (self.num_generated - len(self.spec.generated)))

    @property
    def has_used_slice(self) -> bool:
        return self.slice_tokens is not None and self.num_generated - len(self.spec.generated) >= self.slice_tokens

    @property
    def num_held(self) -> int:
        """Tokens that are not delivered yet."""
        return len(self.tokens) - len(self.spec.prompt) - self.num_delivered

    @property
    def is_decoding(self) -> bool:
        num_tokens = len(self.tokens)  # spelt out: it is asked for every sequence many times an iteration
        return num_tokens - self.num_computed == 1 and num_tokens > len(self.spec.prompt)

    @property
    def generated(self) -> list[int]:
        return self.tokens[self.num_prompt :]

    @property
    def ttft_deadline(self) -> float:
        return self.arrived_at + self.spec.slo_ttft_s

    @property
    def starves_at(self) -> float:
        """The time at which the request has waited for too long. A promise that is tighter than its service's hurries
        nobody once broken.
        """
        return self.arrived_at + self.patience_s

    @property
    def gives_way_until(self) -> float:
        """Return until when its prompt waits for slack of others, though it is late: to compute it sooner would keep
        no promise and break theirs. What has begun its answer waits no longer than it was promised.
        """
        return self.starves_at if self.num_generated else self.arrived_at + MOST_LATE * self.patience_s

    @property
    def patience_s(self) -> float:
        """The request's TTFT promise, once that is broken."""
        return max(self.spec.slo_ttft_s, self.service_ttft_s)

    @property
    def likely_left(self) -> float:
        """Return the tokens that are left to its end: predicted, or else as many as there are so far (`freeness`)."""
        num_generated = self.num_generated
        if self.spec.expected:
            return float(min(self.num_left, self.spec.answer_tokens(num_generated) - num_generated))
        return float(min(self.num_left, max(1, num_generated)))

    def slack_s(self, now: float, step_s: float) -> float:
        """Return how much later than now the next step could start and keep the TPOT promise (Tropical, average
        form).
        """
        first = self.first_token_at if self.first_token_at is not None else now
        return first + self.num_generated * self.spec.slo_tpot_s - now - step_s

    def share_tokens(self, at_most: int, budget: int) -> int:
        """Return how many tokens an iteration computes next that has room for ``at_most`` of the ``budget`` of all.

        A prompt that is not cut waits for an iteration with room for it, and has one of its own if it exceeds all.
        """
        num_uncomputed = self.num_uncomputed
        if not self.is_whole or num_uncomputed <= at_most:
            return min(at_most, num_uncomputed)
        return num_uncomputed if at_most >= budget else 0

    @property
    def may_take_prefix(self) -> bool:
        """Return whether it may begin with KV that was computed for others."""
        return self.spec.sampling.prompt_logprobs is None and self.uses_prefixes and not self.is_whole

    def take_prefix(self, pool: BlockPool) -> None:
        """Hold the blocks of a cached prefix. One token at least is left to compute, or nothing could be sampled."""
        if self.may_take_prefix:
            self.blocks = pool.match(self.tokens, len(self.tokens) - 1, self.spec.prefix_salt)
            self.begin_after(len(self.blocks), pool.block_size)

    def begin_after(self, num_blocks: int, block_size: int) -> None:
        """The first blocks that it holds are full, whoever filled them: what comes after them is computed."""
        self.num_computed = num_blocks * block_size
        self.num_cached = min(self.num_computed, self.num_prompt)

    def chunk(self, num_tokens: int, drafts: Sequence[int] = (), drafting: Drafting | None = None) -> Chunk:
        """The next ``num_tokens`` tokens to compute; samples one if they are the last, and after each of ``drafts``."""
        spec, tokens, start = self.spec, self.tokens, self.num_computed
        end, sampling, num_prompt = start + num_tokens, spec.sampling, len(spec.prompt)
        draw = Draw(sampling, tokens, num_prompt, end, spec.id, spec.pooling) if end == len(tokens) else None
        wanted = sampling.prompt_logprobs if start < num_prompt else None
        adapter = "" if spec.adapter is None else spec.adapter.key
        blocks, images = self.blocks, spec.images
        return Chunk(spec.id, tokens[start:end], start, blocks, draw, wanted, adapter, images, drafts, drafting)

    def append(self, token: int, logprobs: TokenLogprobs | None, now: float) -> FinishReason | None:
        """A token was sampled. Returns why the request ends with it, if it does."""
        self.tokens.append(token)
        if self.first_token_at is None:
            self.first_token_at = now
        if logprobs is not None:
            self.logprobs.append(logprobs)
        sampling, num_generated = self.spec.sampling, len(self.tokens) - len(self.spec.prompt)
        if num_generated >= sampling.min_tokens:
            ends = token in self.eos_token_ids and not sampling.ignore_eos
            if ends or token in sampling.stop_token_ids:
                return FinishReason.STOP
        if num_generated >= sampling.max_tokens or len(self.tokens) >= self.context_limit:
            return FinishReason.LENGTH
        return None

    def advance(self, num_tokens: int, pool: BlockPool) -> None:
        """Note that so many more tokens are computed. Others may find the blocks that they fill."""
        num_before, size = self.num_computed, pool.block_size
        self.num_computed = num_before + num_tokens
        if self.is_whole:
            return  # its blocks hold nothing that others could use
        if self.published is None or self.num_computed // size > num_before // size:
            self.publish_full_blocks(pool)

    def publish_full_blocks(self, pool: BlockPool) -> None:
        """Let others find the blocks that computing has filled since the last call."""
        num_full = self.num_computed // pool.block_size
        run = self.published
        if run is None:
            run = self.published = Run(self.tokens, root_of(self.spec.prefix_salt))
        if num_full > len(run.blocks):
            pool.publish(run, self.blocks, num_full)

    def release_blocks(self, pool: BlockPool) -> None:
        if self.drafter is not None:
            self.drafter.release()
        pool.release(self.blocks)
        if (run := self.published) is not None:
            run.close(len(run.blocks) * pool.block_size)
        self.blocks = []
        self.num_computed = 0
        self.published = None
        self.granted = None

    def offload_blocks(self, pool: BlockPool) -> None:
        """Release the blocks like `release_blocks`, after what they held is kept elsewhere."""
        num_computed = self.num_computed
        self.release_blocks(pool)
        self.num_computed = num_computed

    def take_delta(self, finish: FinishReason | None) -> Delta:
        """Return what the gateway has not been sent yet."""
        self.finish = finish
        delta = self._delta(self.num_delivered, self.num_generated, self.prompt_logprobs or None)
        self.num_delivered = self.num_generated
        self.has_delivered = True
        self.prompt_logprobs = []
        if len(self.logprobs) > 2 * MOST_RESENT and self.transfer is None:  # a new owner repeats all since it began
            del self.logprobs[:-MOST_RESENT]
        return delta

    def resend_from(self, offset: int) -> Delta | None:
        """Return what the gateway was sent from that offset on; None if that is nothing, or not all of it is known
        here.
        """
        if not self.first_known_offset <= offset < self.num_delivered:
            return None
        return self._delta(offset, self.num_delivered, None)

    @property
    def first_known_offset(self) -> int:
        """The offset from which tokens can be resent, with what was wanted of them."""
        sampling = self.spec.sampling
        if sampling.prompt_logprobs is not None:
            return len(self.spec.generated) + 1  # those of the prompt were said with the first token, and forgotten
        return 0 if sampling.logprobs is None else self.num_generated - len(self.logprobs)

    def _delta(
        self,
        start: int,
        end: int,
        prompt_logprobs: list[TokenLogprobs | None] | None,
    ) -> Delta:
        """Of the generated tokens from ``start`` to before ``end``."""
        tokens = self.tokens[self.num_prompt + start : self.num_prompt + end]
        first = self.num_generated - len(self.logprobs)
        logprobs = self.logprobs[start - first : end - first] if self.logprobs and start >= first else []
        return Delta(
            self.id,
            self.epoch,
            start,
            tokens,
            self.finish,
            self.num_cached,
            logprobs or None,
            prompt_logprobs,
            self.vector,
            None if start else self.brought,
        )
