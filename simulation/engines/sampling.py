"""Samples for the steps of simulated engines: a token wherever nothing is left to compute.

Drafts are right with the probability of their request (`simulation.engines.drafts`).

The answers of structured requests are as long as their trace says. What sets them apart is that the mask of a token,
which says what their grammar allows, may come too late: then the engine computes the request's last token again.
"""

from collections.abc import Sequence
from random import Random

from engines.scheduling.batch import ChunkResult, Unsampled
from engines.scheduling.scheduler import Share
from engines.scheduling.step import Step, num_drafts
from simulation.engines.drafts import chance_of

TOKEN_ID = 0
TOKEN = ChunkResult(TOKEN_ID)
NO_TOKEN = ChunkResult()
LATE = ChunkResult(unsampled=Unsampled())


class TokenSampler:
    """Samples tokens for simulated engines. ``late_masks``: the probability that a structured request's mask is
    late; ``draft_acceptance``: that a draft is right if those before it are, mean over requests.
    """

    def __init__(self, late_masks: float, draft_acceptance: float, random: Random) -> None:
        self._late_masks = late_masks
        self._draft_acceptance = draft_acceptance
        self._random = random

    def may_miss(self, step: Step) -> bool:
        """Return whether a token may not be sampled: then steps like this one cannot be passed by."""
        return self._late_masks > 0 and any(share.request.spec.sampling.grammar for share in step.shares)

    def results(self, step: Step) -> Sequence[ChunkResult]:
        """Return the results in the order of the step's shares."""
        if self.may_miss(step) or (step.service.speculation is not None and not step.prompts):
            return [self._result(share) for share in step.shares]
        if not step.prompts:
            return [TOKEN] * len(step.shares)
        return [TOKEN if _samples(share) else NO_TOKEN for share in step.shares]

    def _result(self, share: Share) -> ChunkResult:
        if not _samples(share):
            return NO_TOKEN
        if share.request.spec.sampling.grammar and self._random.random() < self._late_masks:
            return LATE
        most = num_drafts(share)
        if not most:
            return TOKEN
        return ChunkResult(TOKEN_ID, further=[TOKEN] * self._num_right(share.request.id, most), num_checked=most)

    def _num_right(self, request: str, most: int) -> int:
        chance, number = chance_of(request, self._draft_acceptance), 0
        while number < most and self._random.random() < chance:
            number += 1
        return number


def _samples(share: Share) -> bool:
    return share.num_tokens == share.request.num_uncomputed
