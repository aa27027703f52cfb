"""Times batches of known sizes on an executor that serves nobody yet, and fits costs to them.

The fastest of several rounds tells how times depend on sizes: what disturbs a machine only ever adds. How long steps
take on the whole is another question, and predictions that assume the fastest break promises: so the rounds' mean is
kept, too, as a factor of the fastest.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engines.costs.fitting import DecodeSample, MixedSample, PrefillSample, fit_decode, fit_mixed, fit_prefill
from engines.costs.step_cost import Parts, StepCost, StepLoad
from engines.scheduling.batch import Batch, Chunk, Draw, StepExecutor
from mesh.topology.schema import ServiceSpec
from mesh.wire.requests import Pooling, Sampling


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
LONGEST = 3.0  # times as long as the fastest that one step counts at most

GREEDY = Sampling(max_tokens=1, seed=0, temperature=0.0)


@dataclass(frozen=True, slots=True)
class Rounds:
    """What rounds over some points took: all ``elapsed_s`` of each."""

    elapsed_s: Mapping[Point, Sequence[float]]

    def fastest(self) -> Times:
        return {point: min(rounds) for point, rounds in self.elapsed_s.items()}

    def typical(self, kind: type[Point]) -> float:
        """The mean over the fastest round, of points of one kind; 1 if there is none."""
        ratios = [
            min(elapsed_s / fastest_s, LONGEST)
            for point, rounds in self.elapsed_s.items()
            if isinstance(point, kind) and (fastest_s := min(rounds)) > 0
            for elapsed_s in rounds
        ]
        return statistics.fmean(ratios) if ratios else 1.0


def load_of_point(point: Point) -> StepLoad:
    """Return what the iteration of a point computes."""
    match point:
        case PrefillPoint(new_tokens, cached_tokens):
            return StepLoad([(new_tokens, cached_tokens)], 0, 0)
        case DecodePoint(contexts):
            return StepLoad([], len(contexts), sum(contexts))
        case MixedPoint(chunks, contexts):
            return StepLoad(chunks, len(contexts), sum(contexts))


def predict_s(cost: StepCost, point: Point) -> float:
    """Seconds that the iteration of a point takes."""
    return sum(cost.parts(load_of_point(point)))


@dataclass(frozen=True, slots=True)
class Scratch:
    """Blocks of a service that nobody uses yet, and how its tokens are sampled: that is a part of a step."""

    service: str
    num_blocks: int
    block_size: int
    sampling: Sampling = GREEDY
    pooling: Pooling | None = None

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
            chunks.append(self._chunk(new, before, range(first, end), num_generated))
            first = end
        return chunks if first <= self.num_blocks else []

    def _chunk(self, new: int, before: int, table: range, num_generated: int) -> Chunk:
        history = [0] * (new + before)
        num_prompt = len(history) - num_generated
        draw = Draw(self.sampling, history, num_prompt, len(history), pooling=self.pooling)
        return Chunk(f"scratch-{table.start}", [token % 97 for token in range(new)], before, table, draw)


def usual_sampling(spec: ServiceSpec) -> Sampling:
    """Return how tokens are sampled for requests that do not say."""
    return Sampling(max_tokens=1, seed=0, temperature=spec.temperature, top_p=spec.top_p)


def time_points(
    executor: StepExecutor,
    scratch: Scratch,
    points: Sequence[Point],
    repeats: int,
    on_step: Callable[[], None] = lambda: None,
) -> Rounds:
    """Time points of a grid. ``repeats`` rounds over the points that fit, after a round that warms up.

    In rounds, so that a disturbance hits many points once instead of one point every time.
    """
    batches = {point: batch for point in points if (batch := scratch.batch(point)) is not None}
    rounds: dict[Point, list[float]] = {point: [] for point in batches}
    for turn in range(repeats + 1):
        for point, batch in batches.items():
            elapsed_s = executor.execute(batch).elapsed_s
            if turn > 0:
                rounds[point].append(elapsed_s)
            on_step()
    return Rounds(rounds)


def as_typical(cost: StepCost, rounds: Rounds) -> StepCost:
    """Costs that were fitted to the fastest rounds, on the level of all of them."""
    prefill, decode = rounds.typical(PrefillPoint), rounds.typical(DecodePoint)
    return cost.scaled(Parts(prefill, prefill, decode, decode))


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
