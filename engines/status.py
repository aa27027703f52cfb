"""What an engine says of itself, from what it holds: the numbers that routers decide with."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from engines.blocks import BlockPool
from engines.costs import Correction, decode_step_s, prefill_s
from engines.scheduler import ServiceQueue
from engines.sequence import Sequence
from mesh.messages import DecodeCost, KVShape, MemoryRef, PrefillCost, ServiceStatus


@dataclass(slots=True)
class Service:
    """One service on one engine: its queue, its costs, and what its model fixes."""

    queue: ServiceQueue
    shape: KVShape
    memory: MemoryRef | None
    eos_token_ids: frozenset[int]
    context_limit: int
    prefill_cost: PrefillCost
    decode_cost: DecodeCost
    prefill_correction: Correction
    decode_correction: Correction

    @property
    def name(self) -> str:
        return self.queue.service

    @property
    def pool(self) -> BlockPool:
        return self.queue.pool

    def prefill_s(self, sequence: Sequence) -> float:
        """Predicted seconds to compute what is left of a sequence's prompt."""
        factor = self.prefill_correction.factor
        return factor * prefill_s(self.prefill_cost, sequence.num_uncomputed, sequence.num_computed)

    def decoding(self) -> list[Sequence]:
        """Everything that decodes now."""
        return [sequence for sequence in self.queue.running if sequence.is_decoding]

    def decode_step_s(self, decoding: list[Sequence] | None = None) -> float:
        """Predicted seconds of the next decode step of everything that decodes now; 0 if nothing does."""
        decoding = self.decoding() if decoding is None else decoding
        if not decoding:
            return 0.0
        context = sum([len(sequence.tokens) for sequence in decoding])
        return self.decode_correction.factor * decode_step_s(self.decode_cost, len(decoding), context)

    def min_slack_s(self, now: float, step_s: float, decoding: list[Sequence] | None = None) -> float | None:
        """The smallest slack of all running decodes; None if nothing decodes."""
        decoding = self.decoding() if decoding is None else decoding
        return min([sequence.slack_s(now, step_s) for sequence in decoding], default=None)

    def learn_prefill(self, num_tokens: int, num_before: int, measured_s: float) -> None:
        """Correct later predictions by what a prefill of ``num_tokens`` after ``num_before`` took."""
        self.prefill_correction.observe(measured_s, prefill_s(self.prefill_cost, num_tokens, num_before))

    def learn_decode(self, num_requests: int, num_context_tokens: int, measured_s: float) -> None:
        """Correct later predictions by what a decode step took."""
        self.decode_correction.observe(measured_s, decode_step_s(self.decode_cost, num_requests, num_context_tokens))

    def status(self) -> ServiceStatus:
        return ServiceStatus(
            self.name,
            self.pool.num_blocks,
            self.pool.num_free,
            self.pool.block_size,
            _scaled(self.prefill_cost, self.prefill_correction.factor),
            _scaled(self.decode_cost, self.decode_correction.factor),
        )


C = TypeVar("C", PrefillCost, DecodeCost)


def _scaled(cost: C, factor: float) -> C:
    """All seconds of a cost times ``factor``."""
    seconds = {field: getattr(cost, field) * factor for field in cost.__struct_fields__ if field.endswith("_s")}
    if isinstance(cost, DecodeCost):
        seconds["table"] = tuple((num_requests, time_s * factor) for num_requests, time_s in cost.table)
    return replace(cost, **seconds)


def min_or_none(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)
