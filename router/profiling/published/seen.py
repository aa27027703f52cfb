"""Answers that others measured, with their lengths and latencies, or means of many of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mesh.errors import UserError


class FormatError(UserError):
    """A file of measurements that cannot be used: what, where, and what would be right."""


@dataclass(frozen=True, slots=True)
class SeenAnswer:
    """One answer. Seconds; ``start_s`` on any clock, None if nobody kept it. ``step_s``: mean time of a later token."""

    num_input: int
    num_output: int
    ttft_s: float
    step_s: float
    start_s: float | None = None

    @property
    def end_s(self) -> float:
        return (self.start_s or 0.0) + self.ttft_s + self.step_s * (self.num_output - 1)


class Window(NamedTuple):
    """Iterations on average: how many answers they wrote, with so much context in all, how many tokens of prompts they
    computed beside them, and how long each took.
    """

    num_running: float
    context_tokens: float
    prompt_tokens: float
    step_s: float


class First(NamedTuple):
    """The time to a first token while ``num_before`` others were there."""

    num_input: float
    num_before: float
    ttft_s: float


@dataclass(frozen=True, slots=True)
class Published:
    """All that some files tell. ``about``: what they are."""

    about: str
    windows: Sequence[Window]
    firsts: Sequence[First]
    model: str = ""
    kv_tokens: int | None = None
    num_requests: int = 0


def of_answers(about: str, answers: Sequence[SeenAnswer], model: str, at_a_time: int | None) -> Published:
    """Put answers beside each other. ``at_a_time``: requests that were kept in flight, where nobody kept the times of
    their starts. Raise `FormatError` if nothing tells how many there were.
    """
    if not answers:
        raise FormatError(f"{about}: no request of it was answered, so there is nothing to learn")
    if all(answer.start_s is not None for answer in answers):
        return Published(about, *_with_times(answers), model, num_requests=len(answers))
    if at_a_time is None:
        raise FormatError(
            f"{about}: tells neither when requests were sent nor how many at a time; use --max-concurrency"
        )
    together = min(at_a_time, len(answers))
    return Published(about, *_closed_loop(answers, together), model, num_requests=len(answers))


def _with_times(answers: Sequence[SeenAnswer]) -> tuple[list[Window], list[First]]:
    """What else was there while each was written."""
    ordered = sorted(answers, key=lambda one: one.start_s or 0.0)
    windows, firsts = [], []
    for one in ordered:
        start_s = one.start_s or 0.0
        first_s, end_s = start_s + one.ttft_s, one.end_s
        near = [
            other for other in ordered if (other.start_s or 0.0) < end_s and other.end_s > start_s and other is not one
        ]
        before = sum((other.start_s or 0.0) <= start_s < other.end_s for other in near)
        firsts.append(First(one.num_input, before, one.ttft_s))
        num_steps, span_s = one.num_output - 1, end_s - first_s
        if num_steps < 1 or span_s <= 0:
            continue
        beside, context = 1.0, one.num_input + one.num_output / 2
        prompts = 0
        for other in near:
            other_first_s = (other.start_s or 0.0) + other.ttft_s
            share = max(0.0, min(end_s, other.end_s) - max(first_s, other_first_s)) / span_s
            beside += share
            context += share * (other.num_input + other.num_output / 2)
            prompts += other.num_input * (first_s < other_first_s <= end_s)
        windows.append(Window(beside, context, prompts / num_steps, one.step_s))
    return windows, firsts


def _closed_loop(answers: Sequence[SeenAnswer], at_a_time: int) -> tuple[list[Window], list[First]]:
    """While one answer is written, each of the others is replaced by a new request once."""
    mean_input = sum(one.num_input for one in answers) / max(1, len(answers))
    mean_output = sum(one.num_output for one in answers) / max(1, len(answers))
    windows = [
        Window(
            at_a_time,
            (one.num_input + one.num_output / 2) + (at_a_time - 1) * (mean_input + mean_output / 2),
            (at_a_time - 1) * mean_input / mean_output,
            one.step_s,
        )
        for one in answers
        if one.num_output > 1
    ]
    return windows, [First(one.num_input, at_a_time - 1, one.ttft_s) for one in answers]


@dataclass(frozen=True, slots=True)
class SeenMeans:
    """Means over many requests. ``tokens_per_s``: of answers. ``at_a_time``: None if nobody says."""

    num_input: float
    num_output: float
    ttft_s: float
    step_s: float
    requests_per_s: float
    at_a_time: float | None = None


def of_means(about: str, means: Sequence[SeenMeans], model: str, num_requests: int) -> Published:
    """Make windows of means: by Little's law there are as many requests as come in the time that one takes."""
    windows, firsts = [], []
    for one in means:
        num_writing = max(1.0, one.requests_per_s * one.num_output * one.step_s)
        context = num_writing * (one.num_input + one.num_output / 2)
        windows.append(Window(num_writing, context, num_writing * one.num_input / one.num_output, one.step_s))
        in_flight = one.requests_per_s * (one.ttft_s + one.num_output * one.step_s)
        if one.at_a_time is not None and not 0 < num_requests < one.at_a_time:  # a bound that cannot be reached is none
            in_flight = one.at_a_time
        firsts.append(First(one.num_input, max(0.0, in_flight - 1), one.ttft_s))
    return Published(about, windows, firsts, model, num_requests=num_requests)


def joined(parts: Sequence[Published]) -> Published:
    """Several files of one server. Raise `FormatError` if they are of several models."""
    models = {part.model for part in parts if part.model}
    if len(models) > 1:
        raise FormatError(f"--from: the files are of several models, {', '.join(sorted(models))}; name those of one")
    return Published(
        ", ".join(part.about for part in parts),
        [window for part in parts for window in part.windows],
        [first for part in parts for first in part.firsts],
        models.pop() if models else "",
        next((part.kv_tokens for part in parts if part.kv_tokens), None),
        sum(part.num_requests for part in parts),
    )
