"""Times batches of known sizes on an executor that serves nobody yet, and fits costs to them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engines.batch import Batch, Chunk, Draw, StepExecutor
from engines.costs import DecodeSample, PrefillSample, decode_step_s, fit_decode, fit_prefill, prefill_s
from mesh.messages import DecodeCost, PrefillCost, Sampling


@dataclass(frozen=True, slots=True)
class PrefillPoint:
    """A chunk of ``new_tokens`` after ``cached_tokens``."""

    new_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class DecodePoint:
    """A decode step of requests with these contexts, in tokens, the newest included."""

    contexts: tuple[int, ...]


Point = PrefillPoint | DecodePoint
Times = Mapping[Point, float]  # seconds


@dataclass(frozen=True, slots=True)
class Costs:
    """The coefficients of one service on one engine."""

    prefill: PrefillCost
    decode: DecodeCost

    def predict_s(self, point: Point) -> float:
        match point:
            case PrefillPoint(new_tokens, cached_tokens):
                return prefill_s(self.prefill, new_tokens, cached_tokens)
            case DecodePoint(contexts):
                return decode_step_s(self.decode, len(contexts), sum(contexts))


@dataclass(frozen=True, slots=True)
class Scratch:
    """Blocks of a service that nobody uses yet."""

    service: str
    num_blocks: int
    block_size: int

    def batch(self, point: Point) -> Batch | None:
        """The batch that a point stands for; None if it needs more blocks than there are."""
        match point:
            case PrefillPoint(new_tokens, cached_tokens):
                chunks = self._chunks([(new_tokens, cached_tokens)], num_generated=0)
            case DecodePoint(contexts):
                chunks = self._chunks([(1, context - 1) for context in contexts], num_generated=1)
        return Batch(self.service, chunks) if chunks else None

    def _chunks(self, sizes: Iterable[tuple[int, int]], num_generated: int) -> list[Chunk]:
        """Empty if they don't fit."""
        chunks: list[Chunk] = []
        first = 0
        for new, before in sizes:
            end = first - (-(new + before) // self.block_size)
            chunks.append(_chunk(new, before, range(first, end), num_generated))
            first = end
        return chunks if first <= self.num_blocks else []


def _chunk(new: int, before: int, table: range, num_generated: int) -> Chunk:
    history = [0] * (new + before)
    prompt, generated = history[num_generated:], history[:num_generated]
    draw = Draw(Sampling(max_tokens=1, seed=0, temperature=0.0), prompt, generated)
    return Chunk(f"scratch-{table.start}", [token % 97 for token in range(new)], before, table, draw)


def time_points(
    executor: StepExecutor,
    scratch: Scratch,
    points: Sequence[Point],
    repeats: int,
    on_step: Callable[[], None] = lambda: None,
) -> Times:
    """The fastest of ``repeats`` rounds over the points that fit, after a round that warms up.

    In rounds, so that a disturbance hits many points once instead of one point every time.
    """
    batches = {point: batch for point in points if (batch := scratch.batch(point)) is not None}
    fastest = dict.fromkeys(batches, float("inf"))
    for turn in range(repeats + 1):
        for point, batch in batches.items():
            elapsed_s = executor.execute(batch).elapsed_s
            if turn > 0:
                fastest[point] = min(fastest[point], elapsed_s)
            on_step()
    return fastest


def fit(times: Times) -> Costs:
    """Raise `ValueError` unless there is a prefill and a decode among the points."""
    prefills, decodes = [], []
    for point, elapsed_s in times.items():
        match point:
            case PrefillPoint(new_tokens, cached_tokens):
                prefills.append(PrefillSample(new_tokens, cached_tokens, elapsed_s))
            case DecodePoint(contexts):
                decodes.append(DecodeSample(len(contexts), sum(contexts), elapsed_s))
    return Costs(fit_prefill(prefills), fit_decode(decodes))
