"""Predicts how long one iteration of decodes and chunks of prompts takes: the cost models over a batch."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple

import msgspec

from engines.costs.linear import attended_tokens, requests_s, tokens_s
from engines.scheduling.batch import Batch, Chunk, Rows
from mesh.wire.status import DecodeCost, PrefillCost


class MixedCost(msgspec.Struct, frozen=True):
    """What others add to an iteration that computes a chunk of a prompt: each decode, its context, each further prompt.

    ``per_prompt`` is SCLS's p2 (equation 3), the rest is Sarathi-Serve's observation that such decodes are nearly free.
    """

    per_decode_s: float
    per_context_token_s: float
    per_prompt_s: float = 0.0


class Parts(NamedTuple):
    """Seconds of one iteration by what decides them; their sum is its time."""

    prefill_tokens_s: float = 0.0
    prefill_attention_s: float = 0.0
    decode_requests_s: float = 0.0
    decode_attention_s: float = 0.0


class StepLoad(NamedTuple):
    """What an iteration computes: (new tokens, tokens before them) of each chunk, decodes, their context in all."""

    chunks: Sequence[tuple[int, int]]
    num_decodes: int
    context_tokens: int
    adapter_weights: int = 0  # of all LoRA adapters in it, each once


@dataclass(frozen=True, slots=True)
class StepCost:
    """Costs of any batch. Decodes alone take exactly their `DecodeCost`, one chunk of a prompt its `PrefillCost`.

    Both together are rows of the same matrix products, so they take what so many prompt tokens take, but never less
    than the decodes alone; attention is paid one by one. Without ``mixed``, a decode counts as one more token.
    ``host_request_s``: of the processor, for each request but the first of an iteration with a prompt
    (`engines.costs.host`); the costs of prefills and decodes have theirs.
    """

    prefill: PrefillCost
    decode: DecodeCost
    mixed: MixedCost | None = None
    adapter_weight_s: float = 0.0  # that each weight of a LoRA adapter adds to a step with it
    host_request_s: float = 0.0

    def in_chunks(self, chunk_tokens: int) -> "StepCost":
        """The same for an engine that computes longer prompts in chunks."""
        return dataclasses.replace(self, prefill=msgspec.structs.replace(self.prefill, chunk_tokens=chunk_tokens))

    def scaled(self, factors: Parts) -> "StepCost":
        """The same with each part longer by its factor."""
        return StepCost(
            _scaled_prefill(self.prefill, factors.prefill_tokens_s, factors.prefill_attention_s),
            _scaled_decode(self.decode, factors.decode_requests_s, factors.decode_attention_s),
            self.mixed and _scaled_mixed(self.mixed, factors.prefill_tokens_s, factors.decode_attention_s),
            self.adapter_weight_s * factors.decode_requests_s,
            self.host_request_s * factors.prefill_tokens_s,
        )

    def elapsed_s(self, batch: Batch) -> float:
        """Seconds that the batch takes."""
        return sum(self.parts(load_of(batch)))

    def parts(self, load: StepLoad) -> Parts:
        parts = self._parts_of_base(load) if load.chunks else self._decode_parts(load)
        if not load.adapter_weights:
            return parts
        return parts._replace(decode_requests_s=parts.decode_requests_s + self.adapter_weight_s * load.adapter_weights)

    def _parts_of_base(self, load: StepLoad) -> Parts:
        """As if there were no adapters. ``load`` has a chunk of a prompt."""
        prefill, mixed = self.prefill, self.mixed
        num_tokens = sum([new for new, _ in load.chunks])
        attention_s = sum(starmap(self._attention_s, load.chunks))
        rows_s, context_s = tokens_s(prefill, num_tokens), 0.0
        if mixed is not None:
            rows_s += mixed.per_decode_s * load.num_decodes + mixed.per_prompt_s * (len(load.chunks) - 1)
            context_s = mixed.per_context_token_s * load.context_tokens
        elif load.num_decodes:
            rows_s = tokens_s(prefill, num_tokens + load.num_decodes)
            context_s = self.decode.per_context_token_s * load.context_tokens
        rows_s += self.host_request_s * (len(load.chunks) + load.num_decodes - 1)
        least_s = requests_s(self.decode, load.num_decodes) if load.num_decodes else 0.0
        if rows_s >= least_s:
            return Parts(rows_s, attention_s, 0.0, context_s)
        return Parts(0.0, attention_s, least_s, context_s)

    def _decode_parts(self, load: StepLoad) -> Parts:
        cost, num_requests, context = self.decode, load.num_decodes, load.context_tokens
        if not num_requests:
            return Parts()
        attention_s = cost.per_context_token_s * context + cost.per_mean_context_token_s * context / num_requests
        return Parts(decode_requests_s=requests_s(cost, num_requests), decode_attention_s=attention_s)

    def _attention_s(self, new_tokens: int, num_before: int) -> float:
        cost = self.prefill
        attended = attended_tokens(new_tokens, num_before)
        return cost.per_token_context_s * attended + cost.per_cached_token_s * num_before


def load_of(batch: Batch) -> StepLoad:
    if batch.rows is not None:
        return load_of_rows(batch.rows, decodes=is_decode(batch.chunks[0]))
    chunks: list[tuple[int, int]] = []
    num_decodes = context_tokens = 0
    for chunk in batch.chunks:
        if is_decode(chunk):
            num_rows = 1 + len(chunk.drafts)
            num_decodes += num_rows
            context_tokens += num_rows * (chunk.start + 1)
        else:
            chunks.append((len(chunk.tokens), chunk.start))
    return StepLoad(chunks, num_decodes, context_tokens)


def load_of_rows(rows: Rows, *, decodes: bool) -> StepLoad:
    if decodes:
        return StepLoad((), rows.num_rows, rows.num_rows * (rows.num_before + 1))
    return StepLoad([(rows.num_tokens, rows.num_before)] * rows.num_rows, 0, 0)


def is_decode(chunk: Chunk) -> bool:
    """One token, sampled earlier, whose successor is to be sampled."""
    draw = chunk.draw
    return draw is not None and len(chunk.tokens) == 1 and draw.position > draw.num_prompt


def _scaled_prefill(cost: PrefillCost, tokens: float, attention: float) -> PrefillCost:
    return msgspec.structs.replace(
        cost,
        fixed_s=cost.fixed_s * tokens,
        per_token_s=cost.per_token_s * tokens,
        per_token_context_s=cost.per_token_context_s * attention,
        per_cached_token_s=cost.per_cached_token_s * attention,
        table=_scaled_table(cost.table, tokens),
    )


def _scaled_decode(cost: DecodeCost, requests: float, context: float) -> DecodeCost:
    return msgspec.structs.replace(
        cost,
        fixed_s=cost.fixed_s * requests,
        per_request_s=cost.per_request_s * requests,
        per_context_token_s=cost.per_context_token_s * context,
        per_mean_context_token_s=cost.per_mean_context_token_s * context,
        table=_scaled_table(cost.table, requests),
    )


def _scaled_mixed(cost: MixedCost, tokens: float, context: float) -> MixedCost:
    return MixedCost(cost.per_decode_s * tokens, cost.per_context_token_s * context, cost.per_prompt_s * tokens)


def _scaled_table(table: tuple[tuple[int, float], ...], factor: float) -> tuple[tuple[int, float], ...]:
    return tuple([(size, time_s * factor) for size, time_s in table])
