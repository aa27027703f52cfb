"""Models drafts for simulated engines, whose tokens say nothing: each is right with a probability of its request's own.

What engines decide of drafts is theirs: how many pay, and what is learnt of those that were right.
"""

from functools import lru_cache
from random import Random

from engines.engine_request import EngineRequest

MATCH = 8  # tokens that are said to have come before
SPREAD = 3.0  # how alike requests are: that many drafts' worth
MOST_KNOWN = 4096  # requests whose chance is kept


class ModelledLookup:
    """Stands for prompt lookup: it always finds something."""

    def __init__(self) -> None:
        self.length = MATCH

    def look(self) -> int:
        return self.length

    def draft(self, at_most: int) -> list[int]:
        return [0] * at_most


def modelled_lookup(_: EngineRequest) -> ModelledLookup:
    """Return the lookup of a request."""
    return ModelledLookup()


@lru_cache(MOST_KNOWN)
def chance_of(request: str, mean: float) -> float:
    """Draw the chance of a request that a draft is right if those before it are, by its id: on each engine it is the
    same. ``mean``: of the chances of all.
    """
    if not 0.0 < mean < 1.0:
        return mean
    return Random(f"{request}/drafts").betavariate(SPREAD * mean, SPREAD * (1.0 - mean))
