"""Decides how many tokens to draft: as many as raise the rate of tokens, and as no promise forbids.

A draft that is one of several counts with the chance that it and all before it are right. Drafts are rows of the step
beside its decodes, so the cost model says what they take: little while the step is bound by reading weights, their
whole share once the engine is full, and then none pays.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

LEAST_GAIN = 1.05  # of tokens a second, for which anything is drafted: predictions err

StepTime = Callable[[int, int], float]  # of so many further rows with so much context in all, seconds


class Candidate(NamedTuple):
    """A decode that may be given drafts. ``chance``: that one is right if those before it are."""

    chance: float
    most: int
    context: int  # tokens


def drafts_for(candidates: Sequence[Candidate], num_decodes: int, step_s: StepTime, longest_s: float) -> Sequence[int]:
    """Return how many tokens to draft for each. ``num_decodes`` of the step, with these; it may take ``longest_s``."""
    gains = [(one.chance**place, index) for index, one in enumerate(candidates) for place in range(1, one.most + 1)]
    gains.sort(key=lambda gain: (-gain[0], gain[1]))
    best, best_number = LEAST_GAIN * num_decodes / step_s(0, 0), 0
    num_tokens, context = float(num_decodes), 0
    for number, (gain, index) in enumerate(gains, 1):
        num_tokens += gain
        context += candidates[index].context
        takes_s = step_s(number, context)
        if takes_s > longest_s:
            break
        if num_tokens / takes_s > best:
            best, best_number = num_tokens / takes_s, number
    counts = [0] * len(candidates)
    for _, index in gains[:best_number]:
        counts[index] += 1
    return counts
