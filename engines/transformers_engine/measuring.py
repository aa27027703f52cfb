"""Measures roughly what padded batches cost by ``generate``, when an engine starts for the first time.

Each batch is measured as it runs: its prompts in one step, then a few tokens. That gives the coefficients of SCLS's
equations 3 and 4, which the gateway forms batches by; while the engine runs, `engines.costs.learning` keeps them true.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from engines.costs.measuring import DecodePoint, MixedPoint, Point, PrefillPoint, Rounds, fit
from engines.costs.step_cost import StepCost
from engines.scheduling.batch import Batch, Chunk, Draw, Rows, StepExecutor
from mesh.wire.requests import Sampling

# (rows, tokens of each prompt); the first one fits wherever anything does
BATCHES = ((1, 1), (1, 8), (1, 32), (1, 128), (1, 192), (2, 16), (4, 16), (8, 16), (16, 16), (4, 64))
NUM_DECODES = 3  # steps after each prompt
REPEATS = 2


def measure(executor: StepExecutor, service: str, num_tokens: int, max_context: int, sampling: Sampling) -> StepCost:
    """Measure what padded batches cost. ``num_tokens``: that memory holds. The fastest of some rounds counts, after one
    that warms up.
    """
    fitting = [
        (rows, tokens)
        for rows, tokens in BATCHES
        if rows * (tokens + NUM_DECODES + 1) <= num_tokens and tokens + NUM_DECODES < max_context
    ]
    elapsed_s: defaultdict[Point, list[float]] = defaultdict(list)
    for turn in range(1 + REPEATS):
        for rows, tokens in fitting or BATCHES[:1]:
            for point, step_s in _run(executor, service, rows, tokens, sampling):
                if turn:
                    elapsed_s[point].append(step_s)
    return fit(Rounds(elapsed_s).fastest())


def _run(
    executor: StepExecutor, service: str, num_rows: int, num_tokens: int, sampling: Sampling
) -> Iterator[tuple[Point, float]]:
    """What each step of a batch was, and how long it took."""
    histories = [[1 + (row + index) % 97 for index in range(num_tokens)] for row in range(num_rows)]
    starts: Sequence[int] = [0] * num_rows
    for step in range(1 + NUM_DECODES):
        chunks = [
            Chunk(f"row-{row}", history[start:], start, (), Draw(sampling, history, num_tokens, len(history)))
            for row, (history, start) in enumerate(zip(histories, starts, strict=True))
        ]
        rows = Rows(num_rows, len(chunks[0].tokens), starts[0], 1 + NUM_DECODES - step)
        result = executor.execute(Batch(service, chunks, rows))
        yield _point(num_rows, num_tokens, step), result.elapsed_s
        starts = [len(history) for history in histories]
        for history, sampled in zip(histories, result.chunks, strict=True):
            assert sampled.token is not None
            history.append(sampled.token)


def _point(num_rows: int, num_tokens: int, step: int) -> Point:
    if step:
        return DecodePoint((num_tokens + step,) * num_rows)
    return PrefillPoint(num_tokens) if num_rows == 1 else MixedPoint(((num_tokens, 0),) * num_rows)
