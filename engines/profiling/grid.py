"""A thorough profile: a grid of prefills and decode steps to fit to, and other points to judge the fit by."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engines.costs.measuring import DecodePoint, MixedPoint, Point, PrefillPoint, Times, predict_s
from engines.costs.step_cost import StepCost

CACHED_TO_FIT, CACHED_TO_JUDGE = (0, 256, 1024), (0, 128, 640)
CONTEXTS_TO_FIT, CONTEXTS_TO_JUDGE = (32, 128, 1024), (96, 512)
CONTEXTS_BETWEEN = (64, 512)
SMALLEST_PREFILL = 8

Kind = type[PrefillPoint] | type[DecodePoint] | type[MixedPoint]


@dataclass(frozen=True, slots=True)
class GridBounds:
    """What an engine computes at most: ``max_context`` tokens of a request, ``num_tokens`` of all together."""

    chunk_tokens: int
    max_running: int
    max_context: int
    num_tokens: int

    def hold(self, point: Point) -> bool:
        match point:
            case PrefillPoint(new_tokens, cached_tokens):
                return new_tokens <= self.chunk_tokens and new_tokens + cached_tokens <= self._longest
            case DecodePoint(contexts):
                return len(contexts) <= self.max_running and self._hold(contexts)
            case MixedPoint(chunks, contexts):
                num_requests = len(chunks) + len(contexts)
                new_tokens = sum(new for new, _ in chunks)
                lengths = [*contexts, *(new + before for new, before in chunks)]
                return new_tokens <= self.chunk_tokens and num_requests <= self.max_running and self._hold(lengths)

    def _hold(self, lengths: Sequence[int]) -> bool:
        return max(lengths) <= self._longest and sum(lengths) <= self.num_tokens

    @property
    def _longest(self) -> int:
        return min(self.max_context, self.num_tokens)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Relative errors of predictions, as fractions."""

    num_points: int
    p50: float
    p90: float


def points_to_fit(bounds: GridBounds) -> list[Point]:
    """Powers of two, up to the bounds and with them, decodes between them, too; a few iterations of both together."""
    lengths = _doubling(SMALLEST_PREFILL, bounds.chunk_tokens)
    sizes = _doubling(1, bounds.max_running)
    mixed = _mixed(lengths[::2], [size for size in sizes if size > 1][::2], CACHED_TO_FIT[:2], CONTEXTS_TO_FIT[1:])
    pairs = [MixedPoint(((length // 2, 0), (length - length // 2, 0))) for length in lengths if length >= 16]
    between = [3 * size // 2 for size in sizes if size > 1]
    decodes = [*_even(sizes, CONTEXTS_TO_FIT), *_even(between, CONTEXTS_BETWEEN)]
    points = [*_prefills(lengths, CACHED_TO_FIT), *decodes, *mixed, *pairs]
    return [point for point in dict.fromkeys(points) if bounds.hold(point)]


def points_to_judge(bounds: GridBounds) -> list[Point]:
    """Return points between those of the fit, and batches of unlike contexts."""
    lengths = [3 * length // 2 for length in _doubling(SMALLEST_PREFILL, bounds.chunk_tokens)]
    sizes = [1, 2, *(factor * size // 4 for size in _doubling(4, bounds.max_running) for factor in (5, 7))]
    uneven = [_uneven(size) for size in sizes if size > 1]
    mixed: list[Point] = [
        MixedPoint(((length, before),), contexts)
        for length in lengths[1::2]
        for before in CACHED_TO_JUDGE[:2]
        for contexts in uneven[::2]
    ]
    points = [
        *_prefills(lengths, CACHED_TO_JUDGE),
        *_even(sizes, CONTEXTS_TO_JUDGE),
        *(DecodePoint(contexts) for contexts in uneven),
        *mixed,
        *(MixedPoint(((length // 3, 0), (length - length // 3, 128))) for length in lengths if length >= 24),
    ]
    return [point for point in dict.fromkeys(points) if bounds.hold(point)]


def _doubling(first: int, last: int) -> list[int]:
    """``first``, twice that and so on, and ``last``."""
    if last <= first:
        return [last]
    return [first, *_doubling(2 * first, last)]


def _prefills(lengths: Sequence[int], cached: Sequence[int]) -> list[Point]:
    return [PrefillPoint(length, before) for before in cached for length in lengths]


def _even(sizes: Sequence[int], contexts: Sequence[int]) -> list[Point]:
    return [DecodePoint((context,) * size) for size in sizes for context in contexts]


def _mixed(lengths: Sequence[int], sizes: Sequence[int], cached: Sequence[int], contexts: Sequence[int]) -> list[Point]:
    return [
        MixedPoint(((length, before),), (context,) * size)
        for length in lengths
        for before in cached
        for size in sizes
        for context in contexts
    ]


def _uneven(size: int) -> tuple[int, ...]:
    """Contexts from short to long, as a busy engine has them."""
    return tuple(int(context) for context in np.linspace(24, 400, size))


def accuracy(cost: StepCost, times: Times, kind: Kind) -> Accuracy:
    """Return how far predictions are from the measured times of one kind of points. Raise `ValueError` if there is
    none.
    """
    errors = [abs(predict_s(cost, point) / time_s - 1) for point, time_s in times.items() if isinstance(point, kind)]
    if not errors:
        raise ValueError(f"no {kind.__name__} to judge by")
    p50, p90 = np.quantile(errors, [0.5, 0.9])
    return Accuracy(len(errors), float(p50), float(p90))
