"""Groups requests into static batches that minimise the time of all batches together (SCLS, algorithm 1).

Requests are sorted by input length. In some optimum, those that share a batch are neighbours: a batch's time depends
on how many it holds and on the longest, so its other places may as well go to the next longest. That leaves

    T[i] = min over 0 < k <= N_max(L_i) of T[i - k] + T_serve(k, L_i, S)

over the i shortest requests. The times of all k for one length are one column (`SliceEstimator.column`), shared by
requests of equal length, and each T[i] is one minimum over a sum of two arrays.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engines.scheduling.slices.estimates import SliceEstimator


class SliceBatch(NamedTuple):
    """Indices of requests, by length ascending, and the predicted seconds of their slice."""

    members: Sequence[int]
    serving_s: float


def form_batches(lengths: Sequence[int], estimator: SliceEstimator, most: int | None = None) -> list[SliceBatch]:
    """Form batches of requests with these input lengths, shortest first; ``most`` requests in each at most.

    O(n N_max) additions, in n steps.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    num_requests = len(order)
    totals = np.zeros(num_requests + 1)  # backwards: T[i] at n - i, so that T[i - 1], T[i - 2], ... follow each other
    sizes = [0] * (num_requests + 1)  # of the batch that ends with the i-th
    column, known, largest = np.zeros(0), -1, 0
    for count in range(1, num_requests + 1):
        length = lengths[order[count - 1]]
        if length != known:
            known, largest = length, min(estimator.most_requests(length), most or num_requests, num_requests)
            column = estimator.column(length, largest)
        start, reach = num_requests - count + 1, min(largest, count)
        candidates = totals[start : start + reach] + column[:reach]
        best = int(candidates.argmin())
        totals[start - 1] = candidates[best]
        sizes[count] = best + 1
    return _walk_back(order, sizes, lengths, estimator)


def _walk_back(
    order: Sequence[int], sizes: Sequence[int], lengths: Sequence[int], estimator: SliceEstimator
) -> list[SliceBatch]:
    batches: list[SliceBatch] = []
    end = len(order)
    while end:
        members = order[end - sizes[end] : end]
        batches.append(SliceBatch(members, estimator.serving_s(len(members), lengths[members[-1]])))
        end -= sizes[end]
    return batches[::-1]
