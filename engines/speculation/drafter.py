"""Keeps what drafting knows of one request: where its tokens came before, and how often drafts were right."""

from collections.abc import Sequence

from engines.speculation.acceptance import OWN_FADED, OWN_KEPT, OWN_WEIGHT, Acceptance
from engines.speculation.prompt_lookup import PromptLookup


class Drafter:
    """Drafts for one request. ``tokens`` is its own list, which only grows."""

    __slots__ = ("acceptance", "lookup")

    def __init__(self, tokens: Sequence[int]) -> None:
        self.lookup = PromptLookup(tokens)
        self.acceptance = Acceptance(OWN_KEPT, OWN_FADED)

    def chance(self, level: int, expected: float) -> float:
        """Return how likely the next draft is right. ``expected``: of requests of its service."""
        return self.acceptance.chance(level, expected, OWN_WEIGHT)
