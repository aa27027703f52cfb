"""A thorough profile: a grid of prefills and decode steps to fit to, and other points to judge the fit by."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engines.measuring import Costs, DecodePoint, Point, PrefillPoint, Times

CACHED_TO_FIT, CACHED_TO_JUDGE = (0, 256, 1024), (0, 128, 640)
CONTEXTS_TO_FIT, CONTEXTS_TO_JUDGE = (32, 128, 1024), (96, 512)
SMALLEST_PREFILL = 8


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an engine computes at most: ``max_context`` tokens of a request, ``num_tokens`` of all together."""

    chunk_tokens: int
    max_running: int
    max_context: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Relative errors of predictions, as fractions."""

    num_points: int
    p50: float
    p90: float


def points_to_fit(bounds: Bounds) -> list[Point]:
    """Powers of two, up to the bounds and with them."""
    lengths = _doubling(SMALLEST_PREFILL, bounds.chunk_tokens)
    sizes = [*_doubling(1, bounds.max_running)]
    return _grid(bounds, lengths, CACHED_TO_FIT, _even(sizes, CONTEXTS_TO_FIT))


def points_to_judge(bounds: Bounds) -> list[Point]:
    """Between the points of the fit, and batches of unlike contexts."""
    lengths = [3 * length // 2 for length in _doubling(SMALLEST_PREFILL, bounds.chunk_tokens)]
    sizes = [1, *(3 * size // 2 for size in _doubling(2, bounds.max_running))]
    batches = [*_even(sizes, CONTEXTS_TO_JUDGE), *(_uneven(size) for size in sizes if size > 1)]
    return _grid(bounds, lengths, CACHED_TO_JUDGE, batches)


def _doubling(first: int, last: int) -> list[int]:
    """``first``, twice that and so on, and ``last``."""
    if last <= first:
        return [last]
    return [first, *_doubling(2 * first, last)]


def _even(sizes: Sequence[int], contexts: Sequence[int]) -> list[tuple[int, ...]]:
    return [(context,) * size for size in sizes for context in contexts]


def _uneven(size: int) -> tuple[int, ...]:
    """Contexts from short to long, as a busy engine has them."""
    return tuple(int(context) for context in np.linspace(24, 400, size))


def _grid(
    bounds: Bounds, lengths: Sequence[int], cached: Sequence[int], batches: Sequence[tuple[int, ...]]
) -> list[Point]:
    longest = min(bounds.max_context, bounds.num_tokens)
    prefills = [
        PrefillPoint(new, before)
        for before in cached
        for new in lengths
        if new <= bounds.chunk_tokens and new + before <= longest
    ]
    decodes = [
        DecodePoint(contexts)
        for contexts in batches
        if len(contexts) <= bounds.max_running and max(contexts) <= longest and sum(contexts) <= bounds.num_tokens
    ]
    return list(dict.fromkeys([*prefills, *decodes]))


def accuracy(costs: Costs, times: Times, kind: type[PrefillPoint] | type[DecodePoint]) -> Accuracy:
    """How far predictions are from the measured times of one kind of points. Raise `ValueError` if there is none."""
    errors = [abs(costs.predict_s(point) / time_s - 1) for point, time_s in times.items() if isinstance(point, kind)]
    if not errors:
        raise ValueError(f"no {kind.__name__} to judge by")
    p50, p90 = np.quantile(errors, [0.5, 0.9])
    return Accuracy(len(errors), float(p50), float(p90))
