"""The terms of a server's costs, fitted to what was read, and how well they are known.

The time to a first token has a part that no iteration has: the request's way through the server and back. Prompts that
are computed beside answers tell it apart, as the gap between two tokens of those is the iteration alone. So all of
them are fitted together, without negative terms; then forms compete for each cost as they do for engines of ours
(`engines.costs.fitting`).
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from engines.costs.fitting import MixedSample, robust_fit, with_mixed
from engines.costs.linear import attended_tokens
from engines.costs.measuring import (
    LONGEST,
    DecodePoint,
    MixedPoint,
    Point,
    PrefillPoint,
    Times,
    fit,
    load_of_point,
    predict_s,
)
from engines.costs.step_cost import MixedCost, Parts, StepCost
from router.profiling.readings import Bounds, JoinedPrompt, LoneFirstToken, Read

Matrix = NDArray[np.float64]

KNOWN = 0.05  # of the time that a term decides, and less: the term is known
FEWEST_MIXED = 4  # iterations of prompts and decodes that tell what one adds to the other
UNLIKE = 4.0  # times as long a context, at least: it is told from the number of requests
SURE = 2.0  # standard errors: 95 %
USUAL_BUDGETS = tuple(factor * 2**power for power in range(6, 16) for factor in (2, 3))  # tokens


@dataclass(frozen=True, slots=True)
class Terms:
    """``cost``: of iterations. ``request_s``: of a request's way. ``unsure``: by term, how much of the time that it
    decides most it may be wrong by, as a fraction; 95 % sure.
    """

    cost: StepCost
    request_s: float
    chunk_tokens: int | None  # None: no prompt was too long for one iteration
    chunk_at_least: int
    fitted: Times
    held_out: Times
    unsure: Mapping[str, float] = field(default_factory=dict)

    @property
    def are_known(self) -> bool:
        return bool(self.unsure) and max(self.unsure.values()) <= KNOWN


def fit_terms(reads: Sequence[Read]) -> Terms | None:
    """Fit the terms of costs. None: there is not enough to tell anything."""
    budget, at_least = chunk_budget([bounds for one in reads for bounds in one.budgets])
    to_fit = [one for one in reads if not one.is_held_out]
    request_s, prefill_unsure = _request_s(to_fit, budget)
    rounds = _points(reads, request_s, budget)
    times = {point: statistics.median(elapsed_s) for point, elapsed_s in rounds.items()}
    judged = {point for one in reads if one.is_held_out for point in _points([one], request_s, budget)}
    fitted = {point: time_s for point, time_s in times.items() if point not in judged}
    if not all(any(isinstance(point, kind) for point in fitted) for kind in (PrefillPoint, DecodePoint)):
        return None
    shape = _with_told_context(_fitted(fitted), fitted)
    held_out = {point: times[point] for point in judged if point in times}
    unsure = {**prefill_unsure, **_decode_unsure(shape, fitted)}
    return Terms(_leveled(shape, rounds, times), request_s, budget, at_least, fitted, held_out, unsure)


def _fitted(times: Times) -> StepCost:
    """As engines' costs are fitted, but what decodes add to a prompt is always taken as measured: a server's decodes
    are many, and each may cost far more than a prompt's token.
    """
    cost = replace(fit(times), mixed=None)
    mixed = [MixedSample(load_of_point(one), time_s) for one, time_s in times.items() if isinstance(one, MixedPoint)]
    return with_mixed(cost, mixed) if len(mixed) >= FEWEST_MIXED else cost


def _with_told_context(shape: StepCost, fitted: Times) -> StepCost:
    """Where decodes beside prompts had contexts that were all alike, nothing tells a request from its context: then a
    token of context costs what it does without prompts.
    """
    mixed = shape.mixed
    means = [sum(one.contexts) / len(one.contexts) for one in fitted if isinstance(one, MixedPoint) and one.contexts]
    if mixed is None or not means or max(means) >= UNLIKE * min(means):
        return shape
    mean = statistics.fmean(means)
    together_s = mixed.per_decode_s + mean * mixed.per_context_token_s
    context_s = min(shape.decode.per_context_token_s, together_s / mean)
    told = MixedCost(together_s - mean * context_s, context_s, mixed.per_prompt_s)
    return replace(shape, mixed=told)


def _leveled(shape: StepCost, rounds: Mapping[Point, Sequence[float]], times: Times) -> StepCost:
    """The shape of the medians, which a client that was late now and then does not shift, on the level of the means."""
    ratios: dict[type[Point], list[float]] = {PrefillPoint: [1.0], DecodePoint: [1.0]}
    for point, elapsed_s in rounds.items():
        ratios.setdefault(type(point), []).extend([min(one / times[point], LONGEST) for one in elapsed_s])
    prefill, decode = (statistics.fmean(ratios[kind]) for kind in (PrefillPoint, DecodePoint))
    return shape.scaled(Parts(prefill, prefill, decode, decode))


def _points(reads: Sequence[Read], request_s: float, budget: int | None) -> dict[Point, list[float]]:
    found: dict[Point, list[float]] = {}
    for one in reads:
        first = one.first_token
        if first is not None and (budget is None or first.num_input <= budget) and first.ttft_s > request_s:
            found.setdefault(PrefillPoint(first.num_input), []).append(first.ttft_s - request_s)
        for iteration in one.iterations:
            if isinstance(iteration.point, DecodePoint) or _fits(iteration.point, budget):
                found.setdefault(_rounded(iteration.point), []).append(iteration.elapsed_s)
        for point, elapsed_s in _all_chunks(one, budget):
            found.setdefault(point, []).append(elapsed_s)
    return found


def _rounded(point: Point) -> Point:
    """Contexts that hardly differ are the same, so that rounds meet."""
    match point:
        case DecodePoint(contexts):
            mean = round(sum(contexts) / len(contexts) / 8) * 8
            return DecodePoint((max(1, mean),) * len(contexts))
        case MixedPoint(chunks, contexts) if contexts:
            mean = round(sum(contexts) / len(contexts) / 16) * 16
            return MixedPoint(chunks, (max(1, mean),) * len(contexts))
    return point


def _fits(point: Point, budget: int | None) -> bool:
    return not isinstance(point, MixedPoint) or budget is None or sum(new for new, _ in point.chunks) <= budget


def _all_chunks(one: Read, budget: int | None) -> list[tuple[Point, float]]:
    return [] if budget is None else [chunk for joined in one.joined for chunk in _chunks(joined, budget)]


def _chunks(joined: JoinedPrompt, budget: int) -> list[tuple[Point, float]]:
    """Each chunk of a prompt that took several iterations, if their number is what the budget says."""
    size, gaps = budget - len(joined.contexts), joined.gaps_s
    if len(gaps) < 2 or len(gaps) != ceil(joined.num_input / size):
        return []
    points = []
    for index, gap in enumerate(gaps):
        chunk = min(size, joined.num_input - index * size), index * size
        points.append((_rounded(MixedPoint((chunk,), joined.contexts)), gap))
    return points


# --- the way of a request ---------------------------------------------------------------------------------------------

COLUMNS = ("request", "fixed", "per token", "attention", "per decode", "context", "per prompt")


def _request_s(reads: Sequence[Read], budget: int | None) -> tuple[float, dict[str, float]]:
    rows, times = [], []
    for one in reads:
        if one.first_token is not None:
            rows.append(_row_of_first(one.first_token, budget))
            times.append(one.first_token.ttft_s)
        for point, elapsed_s in one.iterations:
            if isinstance(point, MixedPoint) and _fits(point, budget):
                rows.append(_row_of_mixed(point))
                times.append(elapsed_s)
    if not rows:
        return 0.0, {}
    terms = robust_fit(rows, times)
    features, measured = np.array(rows, dtype=np.float64), np.array(times)
    doubts = unsure(features, measured, np.array(terms))
    if not any(row[0] == 0.0 for row in rows):  # nothing tells a request's way from the fixed part of an iteration
        return 0.0, dict(zip(COLUMNS[1:4], doubts[1:4], strict=True))
    return terms[0], dict(zip(COLUMNS[:4], doubts[:4], strict=True))


def _row_of_first(one: LoneFirstToken, budget: int | None) -> list[float]:
    num_chunks = 1 if budget is None else ceil(one.num_input / budget)
    return [1.0, num_chunks, one.num_input, attended_tokens(one.num_input, 0), 0.0, 0.0, 0.0]


def _row_of_mixed(point: MixedPoint) -> list[float]:
    load = load_of_point(point)
    num_tokens = sum(new for new, _ in load.chunks)
    attended = sum(attended_tokens(new, before) for new, before in load.chunks)
    return [0.0, 1.0, num_tokens, attended, load.num_decodes, load.context_tokens, len(load.chunks) - 1]


def _decode_unsure(shape: StepCost, fitted: Times) -> dict[str, float]:
    """Residuals are those of the form that was chosen, the terms those of a line."""
    decodes = {point: time_s for point, time_s in fitted.items() if isinstance(point, DecodePoint)}
    rows = [(1.0, len(point.contexts), sum(point.contexts)) for point in decodes if isinstance(point, DecodePoint)]
    times_s = list(decodes.values())
    measured = np.array(times_s, dtype=np.float64)
    errors = np.array([predict_s(shape, point) / time_s - 1 for point, time_s in decodes.items()])
    features = np.array(rows, dtype=np.float64)
    doubts = unsure(features, measured, np.array(robust_fit(features, times_s)), errors)
    return dict(zip(("step", "per request", "per context token"), doubts, strict=True))


def unsure(features: Matrix, measured: Matrix, terms: Matrix, errors: Matrix | None = None) -> list[float]:
    """Return how unsure each term is: twice its standard error, times the largest share that so much of it would be of
    a measured time.

    ``errors`` are relative; those of the terms if left out. One that too few measurements tell of is infinitely unsure.
    """
    scaled = features / measured[:, None]
    used = np.linalg.norm(scaled, axis=0) > 0
    doubts = np.where(used, np.inf, 0.0)
    num_free = len(measured) - int(used.sum())
    if num_free > 0:
        found = scaled @ terms - 1 if errors is None else errors
        spread = float(np.sqrt(np.sum(np.minimum(np.abs(found), 0.5) ** 2) / num_free))
        inverse = np.linalg.pinv(scaled[:, used].T @ scaled[:, used])
        doubts[used] = SURE * spread * np.sqrt(np.maximum(np.diag(inverse), 0.0)) * scaled[:, used].max(axis=0)
    return [float(doubt) for doubt in doubts]


# --- the budget of an iteration ---------------------------------------------------------------------------------------


def chunk_budget(bounds: Sequence[Bounds]) -> tuple[int | None, int]:
    """Tokens that an iteration computes at most, and how many it computes at least. None: nothing was cut.

    A usual number that most bounds allow is taken, or else the middle of what they leave.
    """
    at_least = int(max([one.least for one in bounds], default=0))
    cut = [one for one in bounds if one.below < inf]
    if not cut:
        return None, at_least
    middle = _middle(bounds)
    candidates = [*USUAL_BUDGETS, middle]
    held = {size: sum(one.least <= size < one.below for one in bounds) for size in candidates}
    most = max(held.values())
    best = [size for size in candidates if held[size] == most]
    if most == held[middle] and not any(size in USUAL_BUDGETS for size in best):
        return middle, at_least
    return min(best, key=lambda size: (size not in USUAL_BUDGETS, size & (size - 1) != 0, abs(size - middle))), at_least


def _middle(bounds: Sequence[Bounds]) -> int:
    """Of the range that most bounds share."""
    edges = sorted({one.least for one in bounds} | {one.below for one in bounds if one.below < inf})
    middles = [(low + high) / 2 for low, high in pairwise(edges)] or edges

    def num_allowing(size: float) -> int:
        return sum(one.least <= size < one.below for one in bounds)

    return max(1, int(max(middles, key=num_allowing)))
