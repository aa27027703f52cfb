"""Reads times of iterations off what clients saw: each iteration gives every answer one token."""

import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import NamedTuple

from engines.costs.measuring import DecodePoint, MixedPoint, Point
from router.profiling.experiments import Aim, Answered, AnswerPiece, SeenExperiment

FEWEST_STEPS = 3  # that a mean is taken of
LONG = 1.15  # times a step of decodes alone, and more than those just before: an iteration computes a prompt, too
SHORTEST = 0.8  # times such a step: what is less was read late, together with the token before
NUM_BEFORE = 5  # steps that tell how long ordinary ones are
APART = 0.4  # of the time to the first token of one prompt alone: first tokens of two iterations
FEWEST_TOGETHER = 4  # prompts of a burst in one iteration whose time tells something
SHORT = 64  # tokens of prompts that are read so quickly that all of a wave are answered at once, if there is room
CACHED = 0.6  # of the time of the first of two equal prompts, or less: the second one was found in a cache


class LoneFirstToken(NamedTuple):
    """A prompt that nobody else's work held up."""

    num_input: int
    ttft_s: float


class Iteration(NamedTuple):
    """One iteration, or the mean of several that are alike."""

    point: Point
    elapsed_s: float


class JoinedPrompt(NamedTuple):
    """A prompt that was computed beside ``contexts``, in as many iterations as there are ``gaps_s``."""

    num_input: int
    contexts: tuple[int, ...]
    gaps_s: tuple[float, ...]


class Bounds(NamedTuple):
    """An iteration computes ``least`` tokens or more at most, and fewer than ``below``."""

    least: float
    below: float = inf


@dataclass(frozen=True, slots=True)
class Read:
    """What one experiment tells. ``at_once``: requests that were answered at a time, while others waited if it
    ``was_full``.
    """

    is_held_out: bool
    first_token: LoneFirstToken | None
    iterations: Sequence[Iteration]
    joined: Sequence[JoinedPrompt]
    budgets: Sequence[Bounds]
    is_cached: bool | None  # the second of two equal prompts
    at_once: int
    was_full: bool


def read(seen: SeenExperiment) -> Read:
    """Read one experiment. What tells nothing is left out."""
    aim, answers = seen.experiment.aim, [one for one in seen.answers if one.events]
    has_steps = answers and aim not in (Aim.BURST, Aim.TWICE)
    step = _step(answers, min([one.sent_s for one in seen.joined], default=inf)) if has_steps else None
    joined = list(_joined(answers, seen.joined, step.elapsed_s)) if step is not None else []
    at_once, was_full = _at_once(seen) if aim is Aim.DECODE else (0, False)
    burst = _clusters(answers) if aim is Aim.BURST else []
    alone = aim is Aim.PREFILL and len(answers) == 1
    return Read(
        seen.experiment.is_held_out,
        LoneFirstToken(answers[0].num_input, answers[0].ttft_s) if alone else None,
        [*([step] if step else []), *map(_one_gap, _whole(joined)), *_large(burst)],
        joined,
        [*map(_bounds_of_join, joined), *_bounds_of_burst(burst)],
        _is_cached(answers) if aim is Aim.TWICE else None,
        at_once,
        was_full,
    )


# --- steps of decodes -------------------------------------------------------------------------------------------------


def _step(answers: Sequence[Answered], until: float) -> Iteration | None:
    """The mean step while all answers are written, until a moment."""
    start, end = max(one.first_s for one in answers), min(until, *(one.last_s for one in answers))
    rates, contexts = [], []
    for one in answers:
        here = [event for event in one.events if start <= event.at_s <= end]
        num_steps = here[-1].num_tokens - here[0].num_tokens if here else 0
        if num_steps < FEWEST_STEPS:
            return None
        rates.append((here[-1].at_s - here[0].at_s) / num_steps)
        contexts.append(one.num_input + (here[0].num_tokens + here[-1].num_tokens) // 2)
    elapsed_s = statistics.median(rates)
    return Iteration(DecodePoint(tuple(contexts)), elapsed_s) if elapsed_s > 0 else None


# --- prompts beside decodes -------------------------------------------------------------------------------------------


def _joined(answers: Sequence[Answered], joined: Sequence[Answered], step_s: float) -> Iterator[JoinedPrompt]:
    for newcomer in joined:
        beside = [one for one in answers if newcomer.events and one.first_s < newcomer.sent_s < one.last_s]
        ends = [one for one in beside if one.last_s >= newcomer.first_s]
        if not ends:
            continue
        gaps = _gaps(ends[0].events, newcomer, step_s)
        if gaps and min(gaps) >= SHORTEST * step_s:
            contexts = tuple([one.num_input + _tokens_at(one.events, newcomer.sent_s) for one in beside])
            yield JoinedPrompt(newcomer.num_input, contexts, gaps)


def _gaps(events: Sequence[AnswerPiece], newcomer: Answered, step_s: float) -> tuple[float, ...]:
    """The gap that ends with the newcomer's first token, and long ones before it, since it was sent."""
    times = [event.at_s for event in events]
    last = bisect_left(times, newcomer.first_s)
    if last == len(times) or (last > 0 and newcomer.first_s - times[last - 1] < times[last] - newcomer.first_s):
        last -= 1
    sent = bisect_left(times, newcomer.sent_s)
    before = [after - before for before, after in pairwise(times[max(0, sent - NUM_BEFORE - 1) : sent])]
    long_s = LONG * max(step_s, *before, 0.0)
    gaps: list[float] = []
    for index in range(last, 0, -1):
        gap = times[index] - times[index - 1]
        if times[index] <= newcomer.sent_s or (gaps and gap < long_s):
            break
        gaps.insert(0, gap)
    return tuple(gaps)


def _tokens_at(events: Sequence[AnswerPiece], at_s: float) -> int:
    index = bisect_left([event.at_s for event in events], at_s)
    return events[max(0, index - 1)].num_tokens


def _whole(joined: Sequence[JoinedPrompt]) -> list[JoinedPrompt]:
    return [one for one in joined if len(one.gaps_s) == 1 and one.gaps_s[0] > 0]


def _one_gap(one: JoinedPrompt) -> Iteration:
    return Iteration(MixedPoint(((one.num_input, 0),), one.contexts), one.gaps_s[0])


def _bounds_of_join(one: JoinedPrompt) -> Bounds:
    num_gaps, num_decodes = len(one.gaps_s), len(one.contexts)
    below = one.num_input / (num_gaps - 1) + num_decodes if num_gaps > 1 else inf
    return Bounds(one.num_input / num_gaps + num_decodes, below)


# --- bursts -----------------------------------------------------------------------------------------------------------


class _Cluster(NamedTuple):
    """Prompts whose first tokens came from one iteration, so long after that before it."""

    num_prompts: int
    num_input: int
    elapsed_s: float
    is_last: bool


def _clusters(answers: Sequence[Answered]) -> list[_Cluster]:
    """Those after the first, which did not find all of them there."""
    if len(answers) < 2:
        return []
    firsts = sorted(one.first_s for one in answers)
    apart_s = APART * min(one.ttft_s for one in answers)
    groups = [[firsts[0]]]
    for before, after in pairwise(firsts):
        if after - before > apart_s:
            groups.append([])
        groups[-1].append(after)
    num_input = round(statistics.fmean(one.num_input for one in answers))
    return [
        _Cluster(len(group), num_input, group[0] - before[0], group is groups[-1]) for before, group in pairwise(groups)
    ]


def _large(clusters: Sequence[_Cluster]) -> list[Iteration]:
    return [
        Iteration(MixedPoint(((one.num_input, 0),) * one.num_prompts), one.elapsed_s)
        for one in clusters
        if one.num_prompts >= FEWEST_TOGETHER
    ]


def _bounds_of_burst(clusters: Sequence[_Cluster]) -> list[Bounds]:
    """The largest of them filled its iteration, unless it is the last one, with parts of prompts at its ends."""
    if not clusters:
        return []
    largest = max(clusters, key=lambda one: one.num_prompts)
    least = (largest.num_prompts - 1) * largest.num_input
    return [Bounds(least, inf if largest.is_last else (largest.num_prompts + 1) * largest.num_input)]


# --- the rest ---------------------------------------------------------------------------------------------------------


def _is_cached(answers: Sequence[Answered]) -> bool | None:
    if len(answers) < 2:
        return None
    first, second = answers[0], answers[-1]
    return second.num_cached > 0 or second.ttft_s < CACHED * first.ttft_s


def _at_once(seen: SeenExperiment) -> tuple[int, bool]:
    """How many were answered before the first of them ended; whether others were not."""
    answers = [one for one in seen.answers if one.events]
    if not answers or max(one.num_input for one in answers) > SHORT:
        return 0, False
    end = min(one.last_s for one in answers)
    at_once = sum(one.first_s < end for one in answers)
    return at_once, at_once < len(answers)
