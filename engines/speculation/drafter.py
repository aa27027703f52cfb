"""Keeps what drafting knows of one request: where its tokens came before, and how often drafts were right."""

from typing import Protocol

from engines.speculation.acceptance import OWN_FADED, OWN_KEPT, OWN_WEIGHT, Acceptance


class Lookup(Protocol):
    """Finds what may follow a request's tokens. See `engines.speculation.prompt_lookup.PromptLookup`."""

    length: int

    def look(self) -> int:
        """Take in what is new. Return `length`: of what has come before; 0: nothing."""

    def draft(self, at_most: int) -> list[int]:
        """Return so many tokens that may follow, where there is a `length`."""


class Drafter:
    """Drafts for one request."""

    __slots__ = ("acceptance", "lookup")

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.acceptance = Acceptance(OWN_KEPT, OWN_FADED)

    def release(self) -> None:
        """There is nothing that it holds."""

    def chance(self, level: int, expected: float) -> float:
        """Return how likely the next draft is right. ``expected``: of requests of its service."""
        return self.acceptance.chance(level, expected, OWN_WEIGHT)
