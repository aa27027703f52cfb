"""Experiments on a server: requests that tell apart what its answers take, and what was seen of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class AskedLengths(NamedTuple):
    """Lengths of one request, in tokens."""

    num_input: int
    num_output: int


class Aim(StrEnum):
    """What an experiment tells."""

    PREFILL = "prefill"  # a prompt by itself
    DECODE = "decode"  # answers that are written together
    JOIN = "join"  # prompts that come while answers are written
    BURST = "burst"  # many short prompts at once
    TWICE = "twice"  # the same prompt again


@dataclass(frozen=True, slots=True)
class LoadExperiment:
    """``asks`` are sent at once, and each of the ``joins`` while those are answered, one after the other."""

    aim: Aim
    asks: tuple[AskedLengths, ...]
    joins: tuple[AskedLengths, ...] = ()
    is_held_out: bool = False  # it judges the fit

    @property
    def num_prompt_tokens(self) -> int:
        return sum(ask.num_input for ask in (*self.asks, *self.joins)) * (2 if self.aim is Aim.TWICE else 1)

    @property
    def num_at_once(self) -> int:
        return len(self.asks) + bool(self.joins)

    @property
    def num_longest(self) -> int:
        """Tokens of the longest prompt with its answer."""
        return max(ask.num_input + ask.num_output for ask in (*self.asks, *self.joins))

    @property
    def num_steps(self) -> int:
        return max(ask.num_output for ask in self.asks)


class AnswerPiece(NamedTuple):
    """A piece of an answer came at a time; ``num_tokens`` of the answer are here by then."""

    at_s: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer as its client saw it. Times are of one clock. ``num_input`` and ``num_cached`` are the server's own
    counts, where it tells them.
    """

    sent_s: float
    events: Sequence[AnswerPiece]
    num_input: int
    num_cached: int = 0

    @property
    def first_s(self) -> float:
        return self.events[0].at_s

    @property
    def last_s(self) -> float:
        return self.events[-1].at_s

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.sent_s


@dataclass(frozen=True, slots=True)
class SeenExperiment:
    """What came of an experiment. ``num_running``: the most requests at a time of which the server told meanwhile."""

    experiment: LoadExperiment
    answers: Sequence[Answered]
    joined: Sequence[Answered] = ()
    num_running: int | None = None
    num_waiting: int | None = None
