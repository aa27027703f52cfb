"""Decides how many prompt tokens fit into one iteration so that its decodes keep their TPOT promises.

Slack looks back or forward. A decode that was faster than its promise has saved slack by now, and prompts may spend
that. It will also save some in each step to come, so that it can make up for a long iteration later: its foreseen slack
is what it will have saved when its answer ends. Its length is not known, so what counts is a length that it will hardly
be shorter than. No iteration takes longer than `LONGEST_GAP` tokens were promised to take, whatever is foreseen.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from engines.engine_request import EngineRequest
from mesh.wire.control import PrefillMode

IterationTime = Callable[[Sequence[tuple[int, int]]], float]  # of chunks: new tokens, and tokens before them

ROUNDING_S = 1e-6  # late by less than this is not late
LONGEST_GAP = 25  # between two tokens, in times of the tightest promise of a token: with 40 ms, that is a second


@dataclass(frozen=True, slots=True)
class Tightest:
    """What the tightest of the running decodes can afford. ``recovers_at``: from when on its slack is not negative."""

    slack_s: float = inf
    recovers_at: float = -inf

    def part(self, share: float) -> "Tightest":
        """Return the same with this share of its slack."""
        return Tightest(share * self.slack_s, self.recovers_at)


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


def tightest_foreseen(decodes: Sequence[EngineRequest], now: float, step_s: float) -> Tightest:
    """Return likewise which decode will have saved the least when its answer ends, if all steps take ``step_s``.

    One that will be late even if its answer is as long as expected holds nobody up.
    """
    foreseen = [
        (foreseen_slack_s(request, request.least_left, now, step_s), number)
        for number, request in enumerate(decodes)
        if foreseen_slack_s(request, request.expected_left, now, step_s) >= 0
    ]
    if not foreseen:
        return Tightest()
    slack_s, number = min(foreseen)
    return Tightest(slack_s, now + decodes[number].expected_left * step_s if slack_s < 0 else -inf)


def in_one_iteration(decodes: Sequence[EngineRequest], slack: Tightest) -> Tightest:
    """Return what of a slack that is foreseen one iteration may take (`LONGEST_GAP`)."""
    longest_s = LONGEST_GAP * min([request.spec.slo_tpot_s for request in decodes], default=inf)
    return Tightest(min(slack.slack_s, longest_s), slack.recovers_at)


def foreseen_slack_s(request: EngineRequest, num_steps: int, now: float, step_s: float) -> float:
    """Return what a decode will have saved after ``num_steps`` steps of ``step_s`` seconds, negative if it is late."""
    return request.slack_s(now, step_s) + (num_steps - 1) * (request.spec.slo_tpot_s - step_s)


def _is_hopeless(request: EngineRequest, slack_s: float, step_s: float) -> bool:
    """It is late, and stays late on average if all its remaining steps hold decodes only."""
    return slack_s < 0 and is_beyond_repair(slack_s, request.spec.slo_tpot_s, request.num_left, step_s)


def is_beyond_repair(slack_s: float, promise_s: float, num_left: int, step_s: float) -> bool:
    """Return whether a late decode stays late on average if each of its ``num_left`` further tokens takes a step."""
    return slack_s + (num_left - 1) * (promise_s - step_s) < -ROUNDING_S


class SlackBudget:
    """The time that prompts may add to an iteration of decodes, spent chunk by chunk.

    ``slack``: what prompts of each mode may take. ``iteration_s`` tells how long it takes with given chunks. Where a
    chunk of ``min_chunk_tokens`` does not fit, the prefill waits for slack, of which each step of decodes alone makes
    more. It waits though it is late by that, as its promise is one and theirs are many, but not for ever: then it gets
    that chunk all the same, lest it starve (`EngineRequest.gives_way_until`).
    """

    def __init__(
        self, iteration_s: IterationTime, slack: Mapping[PrefillMode, Tightest], min_chunk_tokens: int
    ) -> None:
        self._iteration_s = iteration_s
        self._slack = slack
        self._min_chunk_tokens = min_chunk_tokens
        self._decodes_s = iteration_s(())
        self._chunks: tuple[tuple[int, int], ...] = ()

    def chunk_tokens(self, request: EngineRequest, at_most: int, now: float) -> int:
        """Tokens of a prompt to compute in this iteration; 0: none now."""
        at_most = min(at_most, request.num_uncomputed)
        least = min(self._min_chunk_tokens, at_most)
        slack = self._slack[request.prefill_mode]
        fitting = self._largest(request.num_computed, at_most, self._decodes_s + slack.slack_s)
        if fitting >= least:
            return fitting
        cannot_wait = max(now, slack.recovers_at) > request.gives_way_until
        return least if cannot_wait else 0

    def _largest(self, num_before: int, at_most: int, longest_s: float) -> int:
        if longest_s == inf:
            return at_most
        sizes = range(1, at_most + 1)
        return bisect_right(sizes, longest_s, key=lambda size: self._iteration_s((*self._chunks, (size, num_before))))

    def spend(self, num_tokens: int, num_before: int) -> None:
        """A chunk of that many tokens after ``num_before`` is in the iteration."""
        self._chunks += ((num_tokens, num_before),)
