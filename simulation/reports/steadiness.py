"""Judges whether a run came to a steady state, and how many of its first requests are its warm-up.

The warm-up ends where MSER-5 says (White, "An effective truncation heuristic for bias reduction in simulation output",
1997): where what is left gives the mean with the smallest standard error.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, pairwise
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from simulation.reports.intervals import means_of_batches, t_quantile

GROUP = 5  # requests that MSER-5 takes together
FEWEST = 100  # requests that can be judged
NUM_PARTS = 5  # of a quarter and of a half of the run, whose means are compared
NUM_BINS = 20  # of time, from one of which to the next the number in flight changes
SURE = 0.99  # one-sided: queues that are nearly full wander
LEAST_GROWTH = 0.03  # of the rate of arrivals; less is within what one run tells


class Steadiness(StrEnum):
    STEADY = "steady"
    GROWING = "growing"  # more arrives than ends
    UNSETTLED = "unsettled"  # the warm-up takes more than half of the run
    TOO_SHORT = "too short"  # to judge


class Stay(NamedTuple):
    """When a request arrived and ended, in seconds."""

    arrived_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of one run. ``num_warm_up``: the first requests, which its figures leave out. ``growth``: by how
    many requests a second those in flight grew.
    """

    steadiness: Steadiness
    num_requests: int
    num_warm_up: int = 0
    growth: float = 0.0
    is_stationary: bool = True  # the load is said to be

    @property
    def has_intervals(self) -> bool:
        """Do intervals of means tell what a longer run would have come to?"""
        return self.steadiness is Steadiness.STEADY and self.is_stationary

    def warning(self, rate: float | None) -> str | None:
        """What is wrong with the figures of a run with ``rate`` arrivals a second; None: nothing is."""
        match self.steadiness:
            case Steadiness.GROWING:
                at = "this load" if rate is None else f"{rate:.3g}/s"
                return (
                    f"not steady: requests in flight grow by {self.growth:.2g}/s: {at} is more than this "
                    f"serves, or {self.num_requests} requests are too few to see where it ends"
                )
            case Steadiness.UNSETTLED:
                return f"not steady: more than half of the run is warm-up; {self.num_requests} requests are too few"
            case Steadiness.TOO_SHORT:
                return f"too few requests to tell whether this is steady: {self.num_requests} of {FEWEST} at least"
            case Steadiness.STEADY:
                return None


def judge(stays: Iterable[Stay]) -> Judgement:
    """Judge an open loop by its requests in flight. ``stays`` in order of arrival."""
    arrivals, ended = array("d"), array("d")
    for stay in stays:
        arrivals.append(stay.arrived_s)
        ended.append(stay.ended_s)
    count = len(arrivals)
    if count < FEWEST:
        return Judgement(Steadiness.TOO_SHORT, count)
    ends = array("d", sorted(ended))
    in_flight = array("l", (index - bisect_right(ends, at_s) for index, at_s in enumerate(arrivals)))
    growth = growth_in_flight(arrivals[count // 4 :], in_flight[count // 4 :])
    if growth is not None:
        return Judgement(Steadiness.GROWING, count, growth=growth)
    return _settled(in_flight)


def judge_trace(stays: Iterable[Stay]) -> Judgement:
    """Judge a load that nobody says is stationary: only growth is told, and there is no warm-up."""
    found = judge(stays)
    steadiness = Steadiness.GROWING if found.steadiness is Steadiness.GROWING else Steadiness.STEADY
    return replace(found, steadiness=steadiness, num_warm_up=0, is_stationary=False)


def judge_closed(waits_s: Sequence[float]) -> Judgement:
    """Judge a closed loop, whose requests in flight are given, by how long each request waited, in order of arrival."""
    if len(waits_s) < FEWEST:
        return Judgement(Steadiness.TOO_SHORT, len(waits_s))
    return _settled(waits_s)


def refusals_warning(num_refused: int, num_requests: int) -> str | None:
    """What is wrong with the figures of a closed loop most of whose requests were refused; None: nothing is."""
    if 2 * num_refused <= num_requests:
        return None
    return (
        f"{num_refused} of {num_requests} requests were refused, and whoever is refused asks again at once: requests/s "
        "are mostly refusals; take fewer clients (--concurrency), or let them --think"
    )


def _settled(values: Sequence[float]) -> Judgement:
    num_warm_up = warm_up(values)
    if num_warm_up is None:
        return Judgement(Steadiness.UNSETTLED, len(values))
    return Judgement(Steadiness.STEADY, len(values), num_warm_up)


def warm_up(values: Sequence[float]) -> int | None:
    """Return how many values from the first on are to be left out, half of them at most (MSER-5). None: half of them
    are not enough.
    """
    means = [fmean(values[first : first + GROUP]) for first in range(0, len(values) - GROUP + 1, GROUP)]
    count = len(means)
    totals, squares = [0.0, *accumulate(means)], [0.0, *accumulate(mean * mean for mean in means)]

    def squared_error(left_out: int) -> float:
        kept = count - left_out
        total, square = totals[-1] - totals[left_out], squares[-1] - squares[left_out]
        return max(0.0, square - total * total / kept) / kept**2

    best = min(range(count * 3 // 4), key=squared_error)
    if best <= count // 2:
        return best * GROUP
    return None if _has_risen(means) else count // 2 * GROUP


def _has_risen(means: Sequence[float]) -> bool:
    """Is the second half above the second quarter by more than chance? Otherwise it is noise that MSER would cut."""
    half, quarter = len(means) // 2, len(means) // 4
    before, after = (means_of_batches(part, NUM_PARTS) for part in (means[quarter:half], means[half:]))
    error = sqrt((stdev(before) ** 2 + stdev(after) ** 2) / NUM_PARTS)
    return fmean(after) - fmean(before) > t_quantile(SURE, 2 * NUM_PARTS - 2) * error


def growth_in_flight(arrivals: Sequence[float], in_flight: Sequence[float]) -> float | None:
    """Requests a second by which those in flight, seen at each arrival, grow; None if chance may be all of it.

    Changes of a stable queue from one bin of time to the next cancel each other. Those of an overloaded one do not.
    """
    span_s = arrivals[-1] - arrivals[0]
    if span_s <= 0:
        return None
    edges = [arrivals[0] + span_s * index / NUM_BINS for index in range(NUM_BINS)]
    levels = [*(in_flight[bisect_right(arrivals, edge) - 1] for edge in edges), in_flight[-1]]
    changes = [later - earlier for earlier, later in pairwise(levels)]
    chance = t_quantile(SURE, NUM_BINS - 1) * stdev(changes) / sqrt(NUM_BINS)
    growth = fmean(changes) * NUM_BINS / span_s
    is_much = growth > LEAST_GROWTH * len(arrivals) / span_s
    return growth if fmean(changes) > chance and is_much else None
