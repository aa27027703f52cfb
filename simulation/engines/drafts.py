"""Models drafts for simulated engines, whose tokens say nothing: each is right with a probability of its request's own.

What engines decide of drafts is theirs: how many pay, and what is learnt of those that were right.
"""

from collections.abc import Callable
from random import Random

from engines.engine_request import EngineRequest

MATCH = 8  # tokens that are said to have come before
SPREAD = 3.0  # how alike requests are: that many drafts' worth


class ModelledLookup:
    """Finds something always. ``chance``: that a draft is right if those before it are."""

    def __init__(self, chance: float) -> None:
        self.chance = chance
        self.length = MATCH

    def look(self) -> int:
        return self.length

    def draft(self, at_most: int) -> list[int]:
        return [0] * at_most


def lookups(mean: float) -> Callable[[EngineRequest], ModelledLookup]:
    """Return what makes the lookup of a request. ``mean``: of the chances of all."""
    return lambda request: ModelledLookup(chance_of(request.id, mean))


def chance_of(request: str, mean: float) -> float:
    """Draw the chance of a request by its id: on each engine it is the same."""
    if not 0.0 < mean < 1.0:
        return mean
    return Random(f"{request}/drafts").betavariate(SPREAD * mean, SPREAD * (1.0 - mean))
