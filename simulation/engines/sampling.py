"""Samples for the steps of simulated engines: a token wherever nothing is left to compute.

Drafts are right with the probability of their request (`simulation.engines.drafts`).

The answers of structured requests are as long as their trace says. What sets them apart is that the mask of a token,
which says what their grammar allows, may come too late: then the engine computes the request's last token again.
"""

from collections.abc import Sequence
from random import Random

from engines.scheduling.batch import ChunkResult, Unsampled
from engines.scheduling.scheduler import Share
from engines.scheduling.step import Step
from simulation.engines.drafts import ModelledLookup

TOKEN_ID = 0
TOKEN = ChunkResult(TOKEN_ID)
NO_TOKEN = ChunkResult()
LATE = ChunkResult(unsampled=Unsampled())


class TokenSampler:
    """Samples tokens for simulated engines. ``late_masks``: the probability that a structured request's mask is
    late.
    """

    def __init__(self, late_masks: float, random: Random) -> None:
        self._late_masks = late_masks
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
        return TOKEN if not share.drafts else ChunkResult(TOKEN_ID, further=[TOKEN] * self._num_right(share))

    def _num_right(self, share: Share) -> int:
        drafter, number = share.request.drafter, 0
        assert drafter is not None, "there are no drafts without a drafter"
        lookup = drafter.lookup
        assert isinstance(lookup, ModelledLookup), "drafts are modelled here"
        while number < len(share.drafts) and self._random.random() < lookup.chance:
            number += 1
        return number


def _samples(share: Share) -> bool:
    return share.num_tokens == share.request.num_uncomputed
