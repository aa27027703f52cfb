"""Drafts by prompt lookup: what followed the last tokens of a request when they came before (Saxena, 2023).

Answers that copy, quote, edit or repeat are found again in what their request has so far. Looking costs a few
dictionary operations for each new token, however long the context is.
"""

from collections.abc import Sequence

GRAM = 3  # tokens that must have come before, in this order
MOST_INDEXED = 8192  # tokens that one look takes in: a long prompt is taken in by several, each within 2 ms


class PromptLookup:
    """Finds where the last tokens of a request came before. ``tokens`` is the request's own list, which only grows."""

    __slots__ = ("_next", "_num_indexed", "_num_seen", "_places", "_tokens", "length")

    def __init__(self, tokens: Sequence[int]) -> None:
        self.length = 0  # of what has come before, as far as it is known: `GRAM` at least; 0: nothing was found
        self._tokens = tokens
        self._places: dict[tuple[int, int, int], int] = {}  # of the token after these, where they came last
        self._num_indexed = GRAM - 1
        self._num_seen = 0
        self._next = 0  # place of the token that is expected, if there is a ``length``

    def look(self) -> int:
        """Take in what is new. Return `length`."""
        tokens, number = self._tokens, len(self._tokens)
        while self.length and self._num_seen < number:
            is_alike = tokens[self._next] == tokens[self._num_seen]
            self.length = self.length + 1 if is_alike else 0
            self._next += 1
            self._num_seen += 1
        self._num_seen = number
        self._index(number - 1)
        if not self.length and number > GRAM:
            place = self._places.get((tokens[-3], tokens[-2], tokens[-1]))
            if place is not None:
                self._next, self.length = place, GRAM
        return self.length

    def draft(self, at_most: int) -> list[int]:
        """Return what may follow. A repetition that has not ended yet is taken to go on."""
        tokens, first = self._tokens, self._next
        drafts = list(tokens[first : first + at_most])
        while len(drafts) < at_most:
            drafts.append(drafts[first + len(drafts) - len(tokens)])
        return drafts

    def _index(self, end: int) -> None:
        """Note what each of the tokens up to before ``end`` came after, and those at it."""
        first = self._num_indexed + 1
        last = min(end, self._num_indexed + MOST_INDEXED)
        if last < first:
            return
        part = self._tokens[first - GRAM : last]
        self._places.update(zip(zip(part, part[1:], part[2:], strict=False), range(first, last + 1), strict=True))
        self._num_indexed = last
