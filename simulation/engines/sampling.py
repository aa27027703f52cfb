"""Samples for the steps of simulated engines: a token wherever nothing is left to compute.

Drafts are right with the probability of their request (`simulation.engines.drafts`), and those that a grammar forces
always.

The answers of structured requests are as long as their trace says. What sets them apart is that the mask of a token,
which says what their grammar allows, may come too late: then the engine computes the request's last token again. And
where their service speculates, their grammar may force the next tokens.
"""

from collections.abc import Sequence
from random import Random

from engines.engine_request import EngineRequest
from engines.scheduling.batch import ChunkResult, Unsampled
from engines.scheduling.scheduler import Share
from engines.scheduling.step import Step, num_drafts
from simulation.engines.drafts import chance_of

TOKEN_ID = 0
TOKEN = ChunkResult(TOKEN_ID)
NO_TOKEN = ChunkResult()
LATE = ChunkResult(unsampled=Unsampled())


class TokenSampler:
    """Samples tokens for simulated engines. ``late_masks`` is the probability that a structured request's mask is
    late. ``forced_tokens`` is the probability that its next token is the only one that its grammar allows.
    ``draft_acceptance`` is the probability that a draft is right if those before it are, mean over requests.
    """

    def __init__(self, late_masks: float, forced_tokens: float, draft_acceptance: float, random: Random) -> None:
        self._late_masks = late_masks
        self._forced_tokens = forced_tokens
        self._draft_acceptance = draft_acceptance
        self._random = random

    def may_miss(self, step: Step) -> bool:
        """Return whether a token may not be sampled: then steps like this one cannot be passed by."""
        return self._late_masks > 0 and any(share.request.spec.sampling.grammar for share in step.shares)

    def results(self, step: Step) -> Sequence[ChunkResult]:
        """Return the results in the order of the step's shares."""
        if self.may_miss(step) or (step.service.speculation is not None and not step.prompts):
            speculation = step.service.speculation
            most_forced = speculation.num_forced if speculation is not None else 0
            return [self._result(share, most_forced) for share in step.shares]
        if not step.prompts:
            return [TOKEN] * len(step.shares)
        return [TOKEN if _samples(share) else NO_TOKEN for share in step.shares]

    def _result(self, share: Share, most_forced: int) -> ChunkResult:
        if not _samples(share):
            return NO_TOKEN
        if share.request.spec.sampling.grammar and self._random.random() < self._late_masks:
            return LATE
        forced = [TOKEN_ID] * self._num_forced(share.request, most_forced)
        most = num_drafts(share)
        if not most:
            return ChunkResult(TOKEN_ID, forced=forced) if forced else TOKEN
        num_right = most if share.request.forced else self._num_right(share.request.id, most)
        return ChunkResult(TOKEN_ID, further=[TOKEN] * num_right, num_checked=most, forced=forced)

    def _num_forced(self, request: EngineRequest, most: int) -> int:
        number, chance = 0, self._forced_tokens
        if chance and request.spec.sampling.grammar:
            while number < most and self._random.random() < chance:
                number += 1
        return number

    def _num_right(self, request: str, most: int) -> int:
        chance, number = chance_of(request, self._draft_acceptance), 0
        while number < most and self._random.random() < chance:
            number += 1
        return number


def _samples(share: Share) -> bool:
    return share.num_tokens == share.request.num_uncomputed
