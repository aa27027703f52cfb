"""Decides how many prompt tokens fit into one iteration so that its decodes keep their TPOT promises."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from engines.engine_request import EngineRequest

IterationTime = Callable[[Sequence[tuple[int, int]]], float]  # of chunks: new tokens, and tokens before them

ROUNDING_S = 1e-6  # late by less than this is not late


@dataclass(frozen=True, slots=True)
class Tightest:
    """What the tightest of the running decodes can afford. ``recovers_at``: from when on its slack is not negative."""

    slack_s: float = inf
    recovers_at: float = -inf


def tightest(decodes: Iterable[EngineRequest], now: float, step_s: float) -> Tightest:
    """Return the decode with the least slack among those that can still keep their promise; ``step_s``: their next
    step's.
    """
    hopeful = [(request.slack_s(now, step_s), request) for request in decodes]
    hopeful = [(slack_s, one) for slack_s, one in hopeful if not _is_hopeless(one, slack_s, step_s)]
    if not hopeful:
        return Tightest()
    slack_s, request = min(hopeful, key=lambda pair: pair[0])
    gain_s = request.spec.slo_tpot_s - step_s  # of slack, with each step that holds decodes only
    if gain_s <= 0:
        return Tightest(slack_s, inf)
    return Tightest(slack_s, now + step_s * max(0.0, -slack_s) / gain_s)


def _is_hopeless(request: EngineRequest, slack_s: float, step_s: float) -> bool:
    """It is late, and stays late on average if all its remaining steps hold decodes only."""
    return slack_s < 0 and is_beyond_repair(slack_s, request.spec.slo_tpot_s, request.num_left, step_s)


def is_beyond_repair(slack_s: float, promise_s: float, num_left: int, step_s: float) -> bool:
    """Return whether a late decode stays late on average if each of its ``num_left`` further tokens takes a step."""
    return slack_s + (num_left - 1) * (promise_s - step_s) < -ROUNDING_S


class SlackBudget:
    """The time that prompts may add to an iteration of decodes, spent chunk by chunk.

    ``iteration_s`` tells how long it takes with given chunks. Where a chunk of ``min_chunk_tokens`` does not fit, the
    prefill waits for slack, of which each step of decodes alone makes more, unless its own deadline passes first: then
    it gets that chunk all the same, lest it starve.
    """

    def __init__(self, iteration_s: IterationTime, slack: Tightest, margin: float, min_chunk_tokens: int) -> None:
        self._iteration_s = iteration_s
        self._slack = slack
        self._min_chunk_tokens = min_chunk_tokens
        self._longest_s = iteration_s(()) + margin * slack.slack_s
        self._chunks: tuple[tuple[int, int], ...] = ()

    def chunk_tokens(self, request: EngineRequest, at_most: int, now: float) -> int:
        """Tokens of a prompt to compute in this iteration; 0: none now."""
        at_most = min(at_most, request.num_uncomputed)
        least = min(self._min_chunk_tokens, at_most)
        fitting = self._largest(request.num_computed, at_most)
        if fitting >= least:
            return fitting
        cannot_wait = max(now, self._slack.recovers_at) > request.starves_at
        return least if cannot_wait else 0

    def _largest(self, num_before: int, at_most: int) -> int:
        if self._longest_s == inf:
            return at_most
        sizes = range(1, at_most + 1)
        return bisect_right(
            sizes, self._longest_s, key=lambda size: self._iteration_s((*self._chunks, (size, num_before)))
        )

    def spend(self, num_tokens: int, num_before: int) -> None:
        """A chunk of that many tokens after ``num_before`` is in the iteration."""
        self._chunks += ((num_tokens, num_before),)
