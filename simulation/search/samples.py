"""Draws samples of a recording: the same seed gives every candidate the same requests (common random numbers)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Final

from simulation.loads.trace_request import TraceRequest

NUM_BLOCKS: Final = 16  # that a recording is cut into: within one, requests come as they came


def draw_sample(requests: Sequence[TraceRequest], num_requests: int, seed: int) -> list[TraceRequest]:
    """Cut the recording into blocks, beginning anywhere, and play as many of them as it takes, in random order.

    No request comes twice. ``num_requests`` is up to those of the recording. Arrivals are in seconds from the first.
    """
    random, count = Random(f"{seed}/sample"), len(requests)
    mean_gap_s = requests[-1].at_s / max(1, count - 1)
    gaps_s = [later.at_s - earlier.at_s for earlier, later in pairwise(requests)]
    gaps_s.append(mean_gap_s)  # from the last request to the first, as the recording is taken for a ring
    size, begin = max(1, -(-count // NUM_BLOCKS)), random.randrange(count)
    starts = list(range(0, count, size))
    random.shuffle(starts)
    order = [(begin + index) % count for start in starts for index in range(start, min(start + size, count))]
    drawn, at_s = [], 0.0
    for index in order[:num_requests]:
        drawn.append(replace(requests[index], at_s=at_s))
        at_s += gaps_s[index]
    return drawn
