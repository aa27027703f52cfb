"""Services by their requests: clusters of the lengths of prompts and answers (SeaLLM, section 6.1).

Chats, summaries and code come from files, or are drawn to look like them where there are none: chats as Llumnix's paper
describes ShareGPT, summaries normal prompts with lognormal answers, code lognormal in both, with the means and medians
of the files that this project was measured with. K-means goes by the logarithms of lengths: what matters is how many
times as long a request is as another one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from pathlib import Path
from random import Random

from bench.placement.setting import LONGEST
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_lengths

SAMPLE = 1000  # requests of each kind that are clustered
MOST_ROUNDS = 50
CHATS = Path("llumnix:sharegpt")
SUMMARY_PROMPT, SUMMARY_ANSWER = (2590.0, 900.0), (167.0, 1.05)  # mean and deviation; median and sigma
CODE_PROMPT, CODE_ANSWER = (158.0, 0.51), (60.0, 0.63)  # medians and sigmas

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Files:
    """The files of lengths, by kind; None: they are drawn."""

    chats: Path | None = None
    summaries: Path | None = None
    code: Path | None = None


def all_kinds(files: Files, random: Random) -> list[TraceRequest]:
    """Return as many requests of each kind, none longer than the models can take. Raise `TraceError` for a bad file."""
    pools = (
        load_lengths(files.chats or CHATS),
        list(_drawn(_summary, random)) if files.summaries is None else load_lengths(files.summaries),
        list(_drawn(_code, random)) if files.code is None else load_lengths(files.code),
    )
    return [request for pool in pools for request in _sample(pool, random)]


def _sample(pool: Sequence[TraceRequest], random: Random) -> list[TraceRequest]:
    """Choose `SAMPLE` of those that fit; small pools are drawn from again and again."""
    fitting = [request for request in pool if request.num_input + request.num_output <= LONGEST]
    return random.sample(fitting, SAMPLE) if len(fitting) >= SAMPLE else random.choices(fitting, k=SAMPLE)


def _drawn(draw: Callable[[Random], Point], random: Random) -> Iterator[TraceRequest]:
    for _ in range(2 * SAMPLE):
        num_input, num_output = draw(random)
        yield TraceRequest(0.0, max(1, round(num_input)), max(1, round(num_output)))


def _summary(random: Random) -> Point:
    return random.normalvariate(*SUMMARY_PROMPT), _lognormal(SUMMARY_ANSWER, random)


def _code(random: Random) -> Point:
    return _lognormal(CODE_PROMPT, random), _lognormal(CODE_ANSWER, random)


def _lognormal(what: Point, random: Random) -> float:
    median, sigma = what
    return random.lognormvariate(log(median), sigma)


# --- K-means ----------------------------------------------------------------------------------------------------------


def clusters(requests: Sequence[TraceRequest], count: int, random: Random) -> list[list[TraceRequest]]:
    """Return ``count`` clusters at most, none empty; the one with the shortest requests comes first."""
    points = [(log(request.num_input), log(request.num_output)) for request in requests]
    centres = _first_centres(points, count, random)
    nearest = [-1] * len(points)
    for _ in range(MOST_ROUNDS):
        before, nearest = nearest, [_nearest(point, centres) for point in points]
        if nearest == before:
            break
        centres = [
            _centre([point for point, index in zip(points, nearest, strict=True) if index == number], centre)
            for number, centre in enumerate(centres)
        ]
    order = sorted(range(len(centres)), key=lambda number: exp(centres[number][0]) + exp(centres[number][1]))
    found = [[one for one, index in zip(requests, nearest, strict=True) if index == number] for number in order]
    return [cluster for cluster in found if cluster]


def _first_centres(points: Sequence[Point], count: int, random: Random) -> list[Point]:
    """Choose centres that are mostly far from each other (k-means++)."""
    centres = [random.choice(points)]
    distances = [inf] * len(points)
    while len(centres) < count:
        distances = [min(known, _distance(point, centres[-1])) for point, known in zip(points, distances, strict=True)]
        if not any(distances):
            break
        centres.append(random.choices(points, distances)[0])
    return centres


def _nearest(point: Point, centres: Sequence[Point]) -> int:
    x, y = point
    distances = [(x - a) * (x - a) + (y - b) * (y - b) for a, b in centres]
    return distances.index(min(distances))


def _centre(points: Sequence[Point], before: Point) -> Point:
    if not points:
        return before
    return sum(point[0] for point in points) / len(points), sum(point[1] for point in points) / len(points)


def _distance(one: Point, other: Point) -> float:
    """Return the squared distance."""
    return (one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2
