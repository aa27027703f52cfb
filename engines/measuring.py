"""Times batches of known sizes on an executor that serves nobody yet, and fits costs to them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engines.batch import Batch, Chunk, Draw, StepExecutor
from engines.fitting import DecodeSample, MixedSample, PrefillSample, fit_decode, fit_mixed, fit_prefill
from engines.step_cost import Load, StepCost
from mesh.messages import Sampling


@dataclass(frozen=True, slots=True)
class PrefillPoint:
    """A chunk of ``new_tokens`` after ``cached_tokens``."""

    new_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class DecodePoint:
    """A decode step of requests with these contexts, in tokens, the newest included."""

    contexts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MixedPoint:
    """Chunks of prompts, (new tokens, tokens before them), and decodes with these contexts, in one iteration."""

    chunks: tuple[tuple[int, int], ...]
    contexts: tuple[int, ...] = ()


Point = PrefillPoint | DecodePoint | MixedPoint
Times = Mapping[Point, float]  # seconds


def load_of_point(point: Point) -> Load:
    """What the iteration of a point computes."""
    match point:
        case PrefillPoint(new_tokens, cached_tokens):
            return Load([(new_tokens, cached_tokens)], 0, 0)
        case DecodePoint(contexts):
            return Load([], len(contexts), sum(contexts))
        case MixedPoint(chunks, contexts):
            return Load(chunks, len(contexts), sum(contexts))


def predict_s(cost: StepCost, point: Point) -> float:
    """Seconds that the iteration of a point takes."""
    return sum(cost.parts(load_of_point(point)))


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
                sizes = [(new_tokens, cached_tokens, 0)]
            case DecodePoint(contexts):
                sizes = [(1, context - 1, 1) for context in contexts]
            case MixedPoint(prompts, contexts):
                sizes = [(1, context - 1, 1) for context in contexts]
                sizes += [(new_tokens, num_before, 0) for new_tokens, num_before in prompts]
        chunks = self._chunks(sizes)
        return Batch(self.service, chunks) if chunks else None

    def _chunks(self, sizes: Iterable[tuple[int, int, int]]) -> list[Chunk]:
        """Of (tokens, tokens before them, tokens generated). Empty if they don't fit."""
        chunks: list[Chunk] = []
        first = 0
        for new, before, num_generated in sizes:
            end = first - (-(new + before) // self.block_size)
            chunks.append(_chunk(new, before, range(first, end), num_generated))
            first = end
        return chunks if first <= self.num_blocks else []


def _chunk(new: int, before: int, table: range, num_generated: int) -> Chunk:
    history = [0] * (new + before)
    draw = Draw(Sampling(max_tokens=1, seed=0, temperature=0.0), history, len(history) - num_generated, len(history))
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


def fit(times: Times) -> StepCost:
    """Raise `ValueError` unless there is a prefill and a decode among the points."""
    prefills, decodes, mixed = [], [], []
    for point, elapsed_s in times.items():
        match point:
            case PrefillPoint(new_tokens, cached_tokens):
                prefills.append(PrefillSample(new_tokens, cached_tokens, elapsed_s))
            case DecodePoint(contexts):
                decodes.append(DecodeSample(len(contexts), sum(contexts), elapsed_s))
            case MixedPoint():
                mixed.append(MixedSample(load_of_point(point), elapsed_s))
    return fit_mixed(StepCost(fit_prefill(prefills), fit_decode(decodes)), mixed)
