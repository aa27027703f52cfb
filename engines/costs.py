"""What prefills and decode steps cost: predictions, fits from measurements, and a correction while running.

Both costs are linear in known features (`PrefillCost`, `DecodeCost`; Aladdin's equations 2 and 3 with terms for long
prompts, for the KV before a chunk and for small batches), so that a few measured points give the coefficients and
routers can predict any request (Tropical: the prefill time is a function of the lengths alone).
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from mesh.messages import DecodeCost, PrefillCost

Matrix = NDArray[np.float64]

HUBER_RELATIVE = 0.15  # a measurement further off than this fraction of itself weighs less
ROBUST_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class PrefillSample:
    """A prefill of ``new_tokens`` after ``cached_tokens`` whose KV was there took ``elapsed_s``."""

    new_tokens: int
    cached_tokens: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class DecodeSample:
    """A decode step of ``num_requests`` with ``context_tokens`` in all took ``elapsed_s``."""

    num_requests: int
    context_tokens: int
    elapsed_s: float


def attended_tokens(new_tokens: int, cached_tokens: int) -> float:
    """Pairs of a new token and a token that it attends to."""
    return new_tokens * (cached_tokens + new_tokens / 2)


def prefill_s(cost: PrefillCost, new_tokens: int, cached_tokens: int = 0) -> float:
    """Predicted seconds to compute ``new_tokens`` prompt tokens after ``cached_tokens``; 0 for nothing to compute."""
    if new_tokens <= 0:
        return 0.0
    num_chunks = -(-new_tokens // cost.chunk_tokens) if cost.chunk_tokens else 1
    reread = num_chunks * cached_tokens + cost.chunk_tokens * num_chunks * (num_chunks - 1) / 2
    return (
        cost.fixed_s * num_chunks
        + cost.per_token_s * new_tokens
        + cost.per_token_context_s * attended_tokens(new_tokens, cached_tokens)
        + cost.per_cached_token_s * reread
    )


def decode_step_s(cost: DecodeCost, num_requests: int, context_tokens: int) -> float:
    """Predicted seconds of one decode step; 0 for no requests."""
    if num_requests <= 0:
        return 0.0
    if cost.table:
        return _interpolate(cost, num_requests) + cost.per_context_token_s * context_tokens
    return cost.fixed_s + cost.per_request_s * num_requests + cost.per_context_token_s * context_tokens


def _interpolate(cost: DecodeCost, num_requests: int) -> float:
    """On the line through the table's points; level before its first."""
    before, before_s = cost.table[0]
    if num_requests <= before:
        return before_s
    for after, after_s in cost.table:
        if num_requests <= after:
            return before_s + (after_s - before_s) * (num_requests - before) / (after - before)
        before, before_s = after, after_s
    return before_s + cost.per_request_s * (num_requests - before)


def fit_prefill(samples: Sequence[PrefillSample]) -> PrefillCost:
    """Coefficients from measurements, none negative. One sample is enough to say something; none is a `ValueError`.

    Each sample is of one chunk.
    """
    features = [(1.0, s.new_tokens, attended_tokens(s.new_tokens, s.cached_tokens), s.cached_tokens) for s in samples]
    fixed_s, per_token_s, per_token_context_s, per_cached_token_s = _fit(features, [s.elapsed_s for s in samples])
    return PrefillCost(fixed_s, per_token_s, per_token_context_s, per_cached_token_s)


def fit_decode(samples: Sequence[DecodeSample]) -> DecodeCost:
    """Coefficients from measurements, none negative. One sample is enough to say something; none is a `ValueError`.

    Batch sizes that were measured with several contexts make a table.
    """
    elapsed_s = [s.elapsed_s for s in samples]
    fixed_s, per_request_s, per_context_token_s = _fit(
        [(1.0, s.num_requests, s.context_tokens) for s in samples], elapsed_s
    )
    line = DecodeCost(fixed_s, per_request_s, per_context_token_s)
    contexts: dict[int, set[int]] = defaultdict(set)
    for sample in samples:
        contexts[sample.num_requests].add(sample.context_tokens)
    sizes = sorted(size for size, seen in contexts.items() if len(seen) > 1)
    if len(sizes) < 2:
        return line
    inside = [s for s in samples if sizes[0] <= s.num_requests <= sizes[-1]]
    features = [(*_weights(s.num_requests, sizes), s.context_tokens) for s in inside]
    *table_s, per_context_token_s = _fit(features, [s.elapsed_s for s in inside])
    table = tuple(zip(sizes, table_s, strict=True))
    return replace(line, per_context_token_s=per_context_token_s, table=table)


def _weights(num_requests: int, sizes: Sequence[int]) -> list[float]:
    """How much each of the sizes counts when interpolating between them; they add up to 1."""
    return [float(weight) for weight in (np.interp(num_requests, sizes, unit) for unit in np.eye(len(sizes)))]


def _fit(features: Sequence[tuple[float, ...]], elapsed_s: Sequence[float]) -> list[float]:
    """Least squares of the *relative* error, so that short steps count as much as long ones; Huber-weighted."""
    if not features:
        raise ValueError("cannot fit a cost to no samples")
    measured = np.maximum(np.asarray(elapsed_s, dtype=np.float64), 1e-9)
    scaled = np.asarray(features, dtype=np.float64) / measured[:, None]
    weights = np.ones(len(measured))
    coefficients = np.zeros(scaled.shape[1])
    for _ in range(ROBUST_ROUNDS):
        root = np.sqrt(weights)
        coefficients = _non_negative_least_squares(scaled * root[:, None], root)
        error = np.abs(scaled @ coefficients - 1.0)
        weights = HUBER_RELATIVE / np.maximum(error, HUBER_RELATIVE)
    return [float(coefficient) for coefficient in coefficients]


def _non_negative_least_squares(matrix: Matrix, target: Matrix) -> Matrix:
    """Exact for few columns: the best non-negative solution over every subset of them, fewer columns first on ties."""
    columns = matrix.shape[1]
    norms = np.maximum(np.linalg.norm(matrix, axis=0), 1e-300)
    best, best_error = np.zeros(columns), float(target @ target)
    for size in range(1, columns + 1):
        for subset in combinations(range(columns), size):
            chosen = list(subset)
            part, *_ = np.linalg.lstsq(matrix[:, chosen] / norms[chosen], target, rcond=None)
            residual = matrix[:, chosen] @ (part / norms[chosen]) - target
            error = float(residual @ residual)
            if (part >= 0).all() and error < best_error * (1 - 1e-9) - 1e-15:
                best = np.zeros(columns)
                best[chosen] = part / norms[chosen]
                best_error = error
    return best


class Correction:
    """A factor on predictions, kept true while running: the running mean of measured / predicted.

    Exponentially weighted in the logarithm, so that twice too slow and twice too fast weigh the same. A single
    measurement counts for at most ``outlier`` times off, and the factor stays within [1 / ``limit``, ``limit``].
    """

    __slots__ = ("_limit", "_log_factor", "_outlier", "_weight")

    def __init__(self, weight: float = 0.1, limit: float = 8.0, outlier: float = 2.0) -> None:
        self._weight = weight
        self._limit = math.log(limit)
        self._outlier = math.log(outlier)
        self._log_factor = 0.0

    def __repr__(self) -> str:
        return f"<Correction {self.factor:.3f}>"

    @property
    def factor(self) -> float:
        return math.exp(self._log_factor)

    def observe(self, measured_s: float, predicted_s: float) -> None:
        """``predicted_s`` is the *uncorrected* prediction of ``measured_s``. Non-positive times are ignored."""
        if measured_s <= 0 or predicted_s <= 0:
            return
        surprise = math.log(measured_s / predicted_s) - self._log_factor
        surprise = min(max(surprise, -self._outlier), self._outlier)
        self._log_factor = min(max(self._log_factor + self._weight * surprise, -self._limit), self._limit)
