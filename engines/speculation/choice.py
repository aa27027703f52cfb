"""Decides how many tokens to draft: as many as raise the rate of tokens, and as no promise forbids.

A draft that is one of several counts with the chance that it and all before it are right. Drafts are rows of the step
beside its decodes, so the cost model says what they take. They take little while the step is bound by reading
weights. Once the engine is full they take their whole share, and then none pays.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

LEAST_GAIN = 1.05  # of tokens a second, for which anything is drafted: predictions err

StepTime = Callable[[int, int], float]  # of so many further rows with so much context in all, seconds


class Candidate(NamedTuple):
    """A decode that may be given drafts. ``chance``: that one is right if those before it are."""

    chance: float
    most: int
    context: int  # tokens


class Writing(NamedTuple):
    """Seconds that a draft model writes. ``charged_s``: that count for this step, as others have something of it."""

    takes_s: float = 0.0
    charged_s: float = 0.0


class WritingTime(Protocol):
    """Adds up what drafts take to be written."""

    def add(self, candidate: int, place: int) -> Writing:
        """Return the time with this draft, too. Those of a candidate come in order, ``place`` 1 first."""


class FoundDrafts:
    """The `WritingTime` of drafts that are found, and take no time."""

    def add(self, candidate: int, place: int) -> Writing:
        return Writing()


def drafts_for(
    candidates: Sequence[Candidate],
    num_decodes: int,
    step_s: StepTime,
    longest_s: float,
    writing_time: WritingTime | None = None,
) -> Sequence[int]:
    """Return how many tokens to draft for each. ``num_decodes`` of the step, with these; it may take ``longest_s``.
    ``writing_time`` None: the drafts are found.
    """
    writing_time = FoundDrafts() if writing_time is None else writing_time
    gains = [
        (one.chance**place, index, place) for index, one in enumerate(candidates) for place in range(1, one.most + 1)
    ]
    gains.sort(key=lambda gain: (-gain[0], gain[1]))
    best, best_number = LEAST_GAIN * num_decodes / step_s(0, 0), 0
    num_tokens, context = float(num_decodes), 0
    for number, (gain, index, place) in enumerate(gains, 1):
        num_tokens += gain
        context += candidates[index].context
        takes_s, writing = step_s(number, context), writing_time.add(index, place)
        if takes_s + writing.takes_s > longest_s:
            break
        if num_tokens / (takes_s + writing.charged_s) > best:
            best, best_number = num_tokens / (takes_s + writing.charged_s), number
    counts = [0] * len(candidates)
    for _, index, _ in gains[:best_number]:
        counts[index] += 1
    return counts
