"""Fits costs to measured times by robust least squares of the relative error. Held-out error chooses the form.

A cost is a line (Aladdin's equations 2 and 3, SCLS's 3 and 4) or, where sizes were measured one by one, a table of
them; attention adds its terms to either. Forms compete: each is fitted to most of the samples and judged by the rest.
Coefficients are never negative and tables never fall, so that predictions grow with the work.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from engines.costs.linear import attended_tokens, decode_step_s, prefill_s
from engines.costs.step_cost import MixedCost, StepCost, StepLoad
from mesh.wire.status import DecodeCost, PrefillCost

Matrix = NDArray[np.float64]

HUBER_RELATIVE = 0.1  # a measurement further off than this fraction of itself weighs less
FAR_OFF = 0.5  # a measurement that is further off than this fraction of itself was disturbed
MOSTLY = 0.75  # of the measurements; where fewer are near, it is the form that does not fit
ROBUST_ROUNDS = 12
NUM_FOLDS = 5
WORTHWHILE = 0.9  # a form with more terms must have less than this fraction of a simpler one's error
PREFILL_SPACING = 1.9  # of a table's sizes, at least; those between them judge the interpolation
ALIKE = 1e-9  # of a gradient: columns that differ by less cannot be told apart
DECODE_SPACING = 1.3  # closer: kernels for few rows differ from size to size


class Sample(Protocol):
    @property
    def elapsed_s(self) -> float: ...


S = TypeVar("S", bound=Sample)
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class PrefillSample:
    """A chunk of ``new_tokens`` after ``cached_tokens`` whose KV was there took ``elapsed_s``."""

    new_tokens: int
    cached_tokens: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class DecodeSample:
    """A decode step of ``num_requests`` with ``context_tokens`` in all took ``elapsed_s``."""

    num_requests: int
    context_tokens: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class MixedSample:
    """An iteration with prompts, and decodes or several of them, took ``elapsed_s``."""

    load: StepLoad
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class _Form(Generic[S, C]):
    """One way to write a cost."""

    fit: Callable[[Sequence[S]], C]
    predict_s: Callable[[C, S], float]
    num_terms: int


def fit_prefill(samples: Sequence[PrefillSample]) -> PrefillCost:
    """Coefficients from measured chunks. One sample is enough to say something; none is a `ValueError`."""
    forms = [_prefill_form(())]
    knots = _knots([sample.new_tokens for sample in samples], PREFILL_SPACING)
    if len(knots) > 2:
        forms.append(_prefill_form(knots))
    return _best(forms, samples)


def fit_decode(samples: Sequence[DecodeSample]) -> DecodeCost:
    """Coefficients from measured steps. One sample is enough to say something; none is a `ValueError`."""
    forms = [_decode_form((), by_mean=False), _decode_form((), by_mean=True)]
    knots = _knots([sample.num_requests for sample in samples], DECODE_SPACING)
    if len(knots) > 2:
        forms += [_decode_form(knots, by_mean=False), _decode_form(knots, by_mean=True)]
    return _best(forms, samples)


def fit_mixed(cost: StepCost, samples: Sequence[MixedSample]) -> StepCost:
    """Fit what decodes and further prompts add to a prompt's iteration, if measuring it predicts better than assuming
    it.

    The prompts' own part is what ``cost`` predicts; the rest is fitted.
    """
    assumed: _Form[MixedSample, StepCost] = _Form(lambda chosen: cost, _predict_mixed_s, 0)
    measured: _Form[MixedSample, StepCost] = _Form(lambda chosen: with_mixed(cost, chosen), _predict_mixed_s, 3)
    return _best([assumed, measured], samples) if samples else cost


def with_mixed(cost: StepCost, samples: Sequence[MixedSample]) -> StepCost:
    """As `fit_mixed`, without asking whether it is worth it. One sample at least."""
    alone = replace(cost, mixed=MixedCost(0.0, 0.0))
    added = [s.elapsed_s - sum(alone.parts(s.load)) for s in samples]
    features = [(s.load.num_decodes, s.load.context_tokens, len(s.load.chunks) - 1) for s in samples]
    measured = np.array([s.elapsed_s for s in samples])
    scaled = np.array(features, dtype=np.float64) / measured[:, None]
    return replace(cost, mixed=MixedCost(*map(float, robust_least_squares(scaled, np.array(added) / measured))))


def _predict_mixed_s(cost: StepCost, sample: MixedSample) -> float:
    return sum(cost.parts(sample.load))


def _prefill_form(knots: Sequence[int]) -> _Form[PrefillSample, PrefillCost]:
    def fit_form(samples: Sequence[PrefillSample]) -> PrefillCost:
        sizes = [sample.new_tokens for sample in samples]
        attention = [(attended_tokens(s.new_tokens, s.cached_tokens), s.cached_tokens) for s in samples]
        *base, per_token_context_s, per_cached_token_s = _fit_sizes(sizes, knots, attention, samples)
        fixed_s, per_token_s, table = _read_base(base, knots)
        return PrefillCost(fixed_s, per_token_s, per_token_context_s, per_cached_token_s, table=table)

    return _Form(fit_form, _predict_prefill_s, max(2, len(knots)))


def _predict_prefill_s(cost: PrefillCost, sample: PrefillSample) -> float:
    return prefill_s(cost, sample.new_tokens, sample.cached_tokens)


def _decode_form(knots: Sequence[int], *, by_mean: bool) -> _Form[DecodeSample, DecodeCost]:
    def fit_form(samples: Sequence[DecodeSample]) -> DecodeCost:
        sizes = [sample.num_requests for sample in samples]
        contexts = [(s.context_tokens, by_mean * s.context_tokens / s.num_requests) for s in samples]
        *base, per_context_token_s, per_mean_context_token_s = _fit_sizes(sizes, knots, contexts, samples)
        fixed_s, per_request_s, table = _read_base(base, knots)
        return DecodeCost(fixed_s, per_request_s, per_context_token_s, table, per_mean_context_token_s)

    return _Form(fit_form, _predict_decode_s, max(2, len(knots)) + by_mean)


def _predict_decode_s(cost: DecodeCost, sample: DecodeSample) -> float:
    return decode_step_s(cost, sample.num_requests, sample.context_tokens)


def _best(forms: Sequence[_Form[S, C]], samples: Sequence[S]) -> C:
    """The form with the least held-out error, where more terms must earn their place; then fitted to all samples."""
    if not samples:
        raise ValueError("cannot fit a cost to no samples")
    chosen, least = forms[0], _held_out_error(forms[0], samples)
    for form in forms[1:]:
        if form.num_terms < len(samples) and (error := _held_out_error(form, samples)) < WORTHWHILE * least:
            chosen, least = form, error
    return chosen.fit(samples)


def _held_out_error(form: _Form[S, C], samples: Sequence[S]) -> float:
    """Mean relative error over folds, each predicted from the others."""
    order = np.random.default_rng(0).permutation(len(samples))
    errors: list[float] = []
    for fold in range(min(NUM_FOLDS, len(samples))):
        held_out = {int(index) for index in order[fold::NUM_FOLDS]}
        rest = [sample for index, sample in enumerate(samples) if index not in held_out]
        if rest:
            cost = form.fit(rest)
            errors += [_relative_error(form, cost, samples[index]) for index in held_out]
    return float(np.mean(errors)) if errors else float("inf")


def _relative_error(form: _Form[S, C], cost: C, sample: S) -> float:
    measured_s = max(sample.elapsed_s, 1e-9)
    return min(abs(form.predict_s(cost, sample) / measured_s - 1), 1.0)


def _knots(sizes: Sequence[int], spacing: float) -> tuple[int, ...]:
    """Sizes for a table: distinct ones, not too close to each other, the largest among them."""
    knots: list[int] = []
    for size in sorted(set(sizes)):
        if not knots or size >= spacing * knots[-1]:
            knots.append(size)
    if knots and (largest := max(sizes)) != knots[-1]:
        knots[-1:] = [largest]
    return tuple(knots)


def _fit_sizes(
    sizes: Sequence[int], knots: Sequence[int], others: Sequence[tuple[float, ...]], samples: Sequence[Sample]
) -> list[float]:
    base = _table_features(sizes, knots) if knots else np.array([(1.0, size) for size in sizes])
    features = np.hstack([base, np.array(others, dtype=np.float64)])
    return robust_fit(features, [sample.elapsed_s for sample in samples])


def _table_features(sizes: Sequence[int], knots: Sequence[int]) -> Matrix:
    """Of the table's first value and its rises from knot to knot, so that it never falls.

    Beyond the last knot the last rise goes on, as sizes that were left out of a fold may lie there.
    """
    rises = np.zeros((len(sizes), len(knots)))
    rises[:, 0] = 1.0
    for column, (before, after) in enumerate(pairwise(knots), start=1):
        progress = (np.asarray(sizes) - before) / (after - before)
        rises[:, column] = np.maximum(progress, 0.0) if after == knots[-1] else np.clip(progress, 0.0, 1.0)
    return rises


def _read_base(base: Sequence[float], knots: Sequence[int]) -> tuple[float, float, tuple[tuple[int, float], ...]]:
    """(fixed, per unit, table) of a line's two coefficients or of a table's first value and rises.

    With a table, fixed and per unit are of the line through its first and last points.
    """
    if not knots:
        return base[0], base[1], ()
    times_s = [float(time_s) for time_s in np.cumsum(base)]
    slope_s = (times_s[-1] - times_s[0]) / (knots[-1] - knots[0])
    return max(0.0, times_s[0] - slope_s * knots[0]), slope_s, tuple(zip(knots, times_s, strict=True))


def robust_fit(features: Matrix | Sequence[Sequence[float]], elapsed_s: Sequence[float]) -> list[float]:
    """Non-negative coefficients. The *relative* error counts, so that short steps do as much as long ones (Huber)."""
    measured = np.maximum(np.asarray(elapsed_s, dtype=np.float64), 1e-9)
    scaled = np.asarray(features, dtype=np.float64) / measured[:, None]
    return [float(coefficient) for coefficient in robust_least_squares(scaled, np.ones(len(measured)))]


def robust_least_squares(matrix: Matrix, target: Matrix) -> Matrix:
    """Non-negative; rows further off than `HUBER_RELATIVE` weigh less, and few that are `FAR_OFF` do not count.

    Those that weigh less still pull where they are all that tells of a coefficient, as the longest contexts do.
    """
    coefficients = _reweighted(matrix, target, np.ones(len(target)))
    is_near = np.abs(matrix @ coefficients - target) <= FAR_OFF
    if is_near.all() or is_near.sum() < max(matrix.shape[1], MOSTLY * len(target)):
        return coefficients
    return _reweighted(matrix, target, is_near.astype(np.float64))


def _reweighted(matrix: Matrix, target: Matrix, counts: Matrix) -> Matrix:
    """Huber's fit of the rows that count."""
    weights, coefficients = counts, np.zeros(matrix.shape[1])
    for _ in range(ROBUST_ROUNDS):
        root = np.sqrt(weights)
        before, coefficients = coefficients, non_negative_least_squares(matrix * root[:, None], target * root)
        if np.allclose(before, coefficients, rtol=1e-6, atol=0.0):
            break
        error = np.abs(matrix @ coefficients - target)
        weights = counts * HUBER_RELATIVE / np.maximum(error, HUBER_RELATIVE)
    return coefficients


def non_negative_least_squares(matrix: Matrix, target: Matrix) -> Matrix:
    """The solution of least squares without negative entries (Lawson and Hanson, 1974, chapter 23).

    Of columns that nothing tells apart, the first one gets all.
    """
    norms = np.linalg.norm(matrix, axis=0)
    usable = norms > 0
    scaled = matrix / np.where(usable, norms, 1.0)
    free = np.zeros(len(norms), dtype=bool)
    solution = np.zeros(len(norms))
    tolerance = 1e-10 * float(np.linalg.norm(target))
    for _ in range(3 * len(norms)):
        gradient = np.where(free | ~usable, -np.inf, scaled.T @ (target - scaled @ solution))
        steepest = float(gradient.max())
        if steepest <= tolerance:
            break
        entering = int(np.argmax(gradient >= (1 - ALIKE) * steepest))
        free[entering] = True
        solution = _solve_free(scaled, target, free, solution)
    return solution / np.where(usable, norms, 1.0)


def _solve_free(matrix: Matrix, target: Matrix, free: NDArray[np.bool_], solution: Matrix) -> Matrix:
    """Least squares over the free columns; those that would be negative are freed no more, one after the other."""
    while free.any():
        wanted = np.zeros(len(free))
        wanted[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        falling = free & (wanted <= 0)
        if not falling.any():
            return wanted
        ratio = solution[falling] / np.maximum(solution[falling] - wanted[falling], 1e-300)
        solution = solution + min(1.0, float(ratio.min())) * (wanted - solution)
        free &= solution > 1e-14
        solution = np.where(free, solution, 0.0)
    return solution
