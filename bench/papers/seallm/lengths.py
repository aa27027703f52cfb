"""Services by their requests: clusters of the lengths of prompts and answers (SeaLLM, section 6.1).

K-means goes by the logarithms of lengths: what matters is how many times as long a request is as another one.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from bench.placement.setting import LONGEST
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_lengths

SAMPLE = 1000  # requests of each file that are clustered
MOST_ROUNDS = 50

Points = NDArray[np.float64]  # [requests or centres, 2]


def sample_of(path: Path, random: Random) -> list[TraceRequest]:
    """Choose `SAMPLE` of the requests that models can take; small files are drawn from again and again.

    Raise `TraceError` for a bad file.
    """
    fitting = [request for request in load_lengths(path) if request.num_input + request.num_output <= LONGEST]
    return random.sample(fitting, SAMPLE) if len(fitting) >= SAMPLE else random.choices(fitting, k=SAMPLE)


def clusters(requests: Sequence[TraceRequest], count: int, random: Random) -> list[list[TraceRequest]]:
    """Return ``count`` clusters at most, none empty; the one with the shortest requests comes first."""
    points = np.log([(request.num_input, request.num_output) for request in requests])
    centres = _first_centres(points, count, random)
    nearest = np.full(len(points), -1)
    for _ in range(MOST_ROUNDS):
        before, nearest = nearest, _squares(points, centres).argmin(axis=1)
        if (nearest == before).all():
            break
        for number in set(nearest):
            centres[number] = points[nearest == number].mean(axis=0)
    order = np.exp(centres).sum(axis=1).argsort(kind="stable")
    found = [[requests[index] for index in np.flatnonzero(nearest == number).tolist()] for number in order]
    return [cluster for cluster in found if cluster]


def _first_centres(points: Points, count: int, random: Random) -> Points:
    """Choose centres that are mostly far from each other (k-means++)."""
    centres = [random.randrange(len(points))]
    while len(centres) < count:
        distances = _squares(points, points[centres]).min(axis=1)
        if not distances.any():
            break
        centres += random.choices(range(len(points)), distances.tolist())
    return points[centres]


def _squares(points: Points, centres: Points) -> NDArray[np.float64]:
    """Return the squared distances, ``[points, centres]``."""
    distances: NDArray[np.float64] = ((points[:, np.newaxis] - centres) ** 2).sum(axis=2)
    return distances
