"""What this engine's prefills and decode steps cost: measured when it starts, remembered per model and machine.

A few batches over scratch blocks, a second or two on a laptop, give the coefficients that routers predict with; while
the engine runs, `engines.costs.Correction` keeps them true.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from engines.batch import Batch, Chunk, Draw, StepExecutor
from engines.costs import DecodeSample, PrefillSample, fit_decode, fit_prefill
from mesh.messages import DecodeCost, PrefillCost, Sampling

PREFILL_GRID = ((8, 0), (32, 0), (128, 0), (256, 0), (16, 496), (128, 384))  # (new tokens, tokens before them)
DECODE_GRID = ((1, 16), (1, 512), (2, 64), (4, 128), (8, 16), (8, 256), (16, 64))  # (requests, context tokens of each)
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Costs:
    """The coefficients of one service on one engine."""

    prefill: PrefillCost
    decode: DecodeCost


@dataclass(frozen=True, slots=True)
class Scratch:
    """Blocks that nobody uses yet."""

    num_blocks: int
    block_size: int

    def tables(self, num_requests: int, num_tokens: int) -> list[range] | None:
        """Disjoint block tables for that many requests of that many tokens; None if they don't fit."""
        each = -(-num_tokens // self.block_size)
        if each * num_requests > self.num_blocks:
            return None
        return [range(index * each, (index + 1) * each) for index in range(num_requests)]


def measure(executor: StepExecutor, service: str, scratch: Scratch, chunk_tokens: int) -> Costs:
    """Run the grids and fit. A point's first run warms caches and is thrown away; the fastest of the rest counts."""
    prefills = [
        PrefillSample(new, before, _fastest(executor, batch))
        for (new, before), batch in _prefills(service, scratch, chunk_tokens)
    ]
    decodes = [
        DecodeSample(requests, requests * context, _fastest(executor, batch))
        for (requests, context), batch in _decodes(service, scratch)
    ]
    return Costs(fit_prefill(prefills), fit_decode(decodes))


def _fastest(executor: StepExecutor, batch: Batch) -> float:
    return min([executor.execute(batch).elapsed_s for _ in range(REPEATS)][1:])


def _prefills(service: str, scratch: Scratch, chunk_tokens: int) -> Iterator[tuple[tuple[int, int], Batch]]:
    for new, before in PREFILL_GRID:
        tables = scratch.tables(1, new + before)
        if new <= chunk_tokens and tables is not None:
            yield (new, before), Batch(service, [_chunk(new, before, tables[0])])


def _decodes(service: str, scratch: Scratch) -> Iterator[tuple[tuple[int, int], Batch]]:
    for requests, context in DECODE_GRID:
        tables = scratch.tables(requests, context)
        if tables is not None:
            yield (requests, context), Batch(service, [_chunk(1, context - 1, table) for table in tables])


def _chunk(new: int, before: int, table: range) -> Chunk:
    draw = Draw(Sampling(max_tokens=1, seed=0, temperature=0.0), [0] * (new + before), [])
    return Chunk(f"calibration-{table.start}", [token % 97 for token in range(new)], before, table, draw)
