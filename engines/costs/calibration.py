"""Measures roughly and at once what this engine's steps cost, when it starts for the first time.

A few batches over scratch blocks, a second or two on a laptop, give the coefficients that routers predict with; while
the engine runs, `engines.costs.learning` keeps them true. ``mesh profile`` measures the same more thoroughly. The
fastest round counts: engines that start together disturb each other, and do so no more when they serve.
"""

from engines.costs.measuring import DecodePoint, MixedPoint, Point, PrefillPoint, Scratch, fit, time_points
from engines.costs.step_cost import StepCost
from engines.scheduling.batch import StepExecutor

PREFILL_GRID = ((8, 0), (32, 0), (128, 0), (256, 0), (16, 496), (64, 448))  # (new tokens, tokens before them)
DECODE_SIZES, DECODE_CONTEXTS = (1, 2, 3, 4, 6, 8, 16), (16, 256)  # requests, tokens of each
REPEATS = 2


def calibrate_whole(executor: StepExecutor, scratch: Scratch, max_context: int) -> StepCost:
    """Measure and fit prompts that are computed whole, which nothing follows. What decodes would cost is asked for all
    the same: as much as prompts of one token.
    """
    sizes = [new for new, cached in PREFILL_GRID if not cached and new <= max_context]
    points: list[Point] = [PrefillPoint(min(scratch.block_size, max_context)), *map(PrefillPoint, sizes)]
    points += [MixedPoint(((size, 0),) * num) for size in sizes[:2] for num in (4, 8)]
    points += [DecodePoint((1,) * num) for num in DECODE_SIZES]
    return fit(time_points(executor, scratch, list(dict.fromkeys(points)), REPEATS).fastest())


def calibrate(executor: StepExecutor, scratch: Scratch, chunk_tokens: int) -> StepCost:
    """Measure steps and fit their costs. There is room for at least one block."""
    return fit(time_points(executor, scratch, _grid(chunk_tokens, scratch.block_size), REPEATS).fastest())


def _grid(chunk_tokens: int, block_size: int) -> list[Point]:
    """The smallest points fit into one block, so that there is always something to fit to."""
    points: list[Point] = [PrefillPoint(min(chunk_tokens, block_size)), DecodePoint((1,))]
    points += [PrefillPoint(min(new, chunk_tokens), cached) for new, cached in PREFILL_GRID]
    points += [DecodePoint((context,) * requests) for requests in DECODE_SIZES for context in DECODE_CONTEXTS]
    return list(dict.fromkeys(points))
