"""Lengths of requests like those of SeaLLM's three data sets: lognormal, with the means of its table 1.

Table 1 gives means only. How far lengths spread is an assumption, ``cv``: runs are shown over a range of it. A model of
4,096 tokens cannot take most prompts of LongBench. The paper does not say what it does with them, so both can be run:
``context`` cuts prompts, and without it they stay as long as they are.
"""

from dataclasses import dataclass
from math import exp, log, sqrt
from random import Random

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from simulation.loads.trace_request import TraceRequest

LONGEST = 32768  # tokens of a prompt, and of an answer


@dataclass(frozen=True, slots=True)
class LengthMeans:
    """Mean tokens of prompts and answers."""

    prompt: float
    answer: float


SHAREGPT, LONGBENCH, HUMANEVAL = LengthMeans(73.0, 426.9), LengthMeans(13186.8, 21.1), LengthMeans(156.5, 66.9)
TABLE_1 = SHAREGPT, LONGBENCH, HUMANEVAL


@dataclass(frozen=True, slots=True)
class Spread:
    """``cv``: coefficient of variation of all lengths. ``context``: tokens that a prompt is cut to with its answer."""

    cv: float = 1.0
    context: int | None = None

    def requests(self, count: int, random: Random) -> list[TraceRequest]:
        """Draw ``count`` requests of each data set."""
        return [self.request(means, random) for means in TABLE_1 for _ in range(count)]

    def request(self, means: LengthMeans, random: Random) -> TraceRequest:
        """Draw one of a data set."""
        most = LONGEST if self.context is None else self.context
        answer = min(self._tokens(means.answer, random), most // 2)
        room = LONGEST if self.context is None else self.context - answer
        return TraceRequest(0.0, min(self._tokens(means.prompt, random), room), answer)

    def _tokens(self, mean: float, random: Random) -> int:
        sigma = sqrt(log(1 + self.cv**2))
        return min(LONGEST, max(1, round(mean * exp(random.gauss(-(sigma**2) / 2, sigma)))))


def clusters(requests: list[TraceRequest], count: int, random: Random) -> list[list[TraceRequest]]:
    """Group requests by length (K-means, section 6.1): ``count`` clusters at most, none empty, the shortest first.

    It goes by the logarithms of lengths: what matters is how many times as long a request is as another one.
    """
    points: NDArray[np.float64] = np.log([(request.num_input, request.num_output) for request in requests])
    count = min(count, len({(request.num_input, request.num_output) for request in requests}))
    seed = random.getrandbits(32)
    centres, nearest = kmeans2(points, count, minit="++", rng=np.random.default_rng(seed))
    order = np.exp(centres).sum(axis=1).argsort(kind="stable")
    found = [[requests[index] for index in np.flatnonzero(nearest == number).tolist()] for number in order]
    return [cluster for cluster in found if cluster]
