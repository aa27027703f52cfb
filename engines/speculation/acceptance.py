"""Estimates how likely a draft is right, by how much of what came before it matches."""

from engines.speculation.prompt_lookup import GRAM

EXPECTED = (0.3, 0.5, 0.7, 0.9, 0.95)  # before anything is known, by level: of matches, and of what a grammar forces
FORCED = len(EXPECTED) - 1  # whose text a model may cut into other tokens
KEPT = 0.98  # of what was known, with each draft that was checked
FADED = 0.995  # and with each step that might have drafted and did not, so that it is tried again
WEIGHT = 4.0  # of what is expected, in drafts
OWN_KEPT, OWN_FADED, OWN_WEIGHT = 0.85, 0.95, 2.0  # of one request, beside what is known of its service
SUREST = 0.98


def level_of(length: int) -> int:
    """Return which estimate a match of so many tokens belongs to."""
    return min(length.bit_length() - GRAM.bit_length(), FORCED - 1)


class Acceptance:
    """What was seen of drafts, those seen last counting most: by level, the mean and how much it weighs."""

    __slots__ = ("_hits", "_mass", "_rates")

    def __init__(self, kept: float, faded: float) -> None:
        self._hits = [0.0] * len(EXPECTED)
        self._mass = [0.0] * len(EXPECTED)
        self._rates = kept, faded

    def chance(self, level: int, expected: float, weight: float) -> float:
        """Return how likely the next draft is right if those before it are. ``expected`` weighs as many drafts."""
        return min(SUREST, (self._hits[level] + weight * expected) / (self._mass[level] + weight))

    def checked(self, level: int, num_drafts: int, num_accepted: int) -> None:
        """Note what became of drafts. What comes after the first wrong one was not tried."""
        num_tried = min(num_drafts, num_accepted + 1)
        kept = self._rates[0] ** num_tried
        self._hits[level] = kept * self._hits[level] + num_accepted
        self._mass[level] = kept * self._mass[level] + num_tried

    def fade(self, level: int) -> None:
        """Note that nothing was drafted where it could have been."""
        faded = self._rates[1]
        self._hits[level] *= faded
        self._mass[level] *= faded
