"""The lengths of answers that were seen, in bins, and the distribution that they tell of.

Some answers were cut: their client left, or `max_tokens` was reached. Others go on. All that they say is that they are
longer. To drop them would make predictions too short, to count them as whole, too. Kaplan and Meier's estimator (1958)
uses both kinds: of the answers that got as far as a bin, what share ended in it? Beyond the longest of all, lengths are
taken to be geometric: an answer is as likely to end at each token as all were on average. Bins hold one length each at
first and then 8 % more than the one before, so memory and time do not depend on how many answers were seen.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil, expm1, inf
from operator import add, mul

ROUNDING = 1e-9  # a share below it is nothing
EXACT = 32  # lengths up to here have a bin each
GROWTH = 1.08
LONGEST = 2**20  # tokens: what is longer counts as so long
MEMORY = 4096.0  # answers that a histogram remembers at most; then all count half, so that it follows the traffic


def _lows() -> list[int]:
    lows = [float(number) for number in range(1, EXACT + 1)]
    while lows[-1] < LONGEST:
        lows.append(max(lows[-1] + 1, lows[-1] * GROWTH))
    return [int(low) for low in lows]


LOWS = _lows()  # the shortest length of each bin, and where the last one ends
NUM_BINS = len(LOWS) - 1
WIDTHS = [after - low for low, after in pairwise(LOWS)]
MIDDLES = [low + (width - 1) / 2 for low, width in zip(LOWS, WIDTHS, strict=False)]
CUT_EXPOSURE = [(width + 1) / (2 * width) for width in WIDTHS]  # the share of its last bin that a cut answer survived


def bin_of(length: int) -> int:
    return min(bisect_right(LOWS, max(1, length)) - 1, NUM_BINS - 1)


class LengthHistogram:
    """A histogram of answers' lengths. ``weight`` is the number of answers, older ones counted as less."""

    __slots__ = ("cut", "ended", "tokens", "weight")

    def __init__(self) -> None:
        self.ended = [0.0] * NUM_BINS
        self.tokens = [0.0] * NUM_BINS  # of those that ended
        self.cut = [0.0] * NUM_BINS
        self.weight = 0.0

    def __repr__(self) -> str:
        return f"<LengthHistogram of {self.weight:.0f} answers, {sum(self.cut):.0f} of them cut>"

    def add(self, length: int, *, is_whole: bool) -> None:
        """An answer that ended at ``length`` tokens, or was cut there."""
        number = bin_of(length)
        if is_whole:
            self.ended[number] += 1
            self.tokens[number] += min(max(1, length), LONGEST)
        else:
            self.cut[number] += 1
        self.weight += 1
        if self.weight >= MEMORY:
            for counts in (self.ended, self.tokens, self.cut):
                counts[:] = [count / 2 for count in counts]
            self.weight /= 2


class LengthDistribution:
    """A mixture of histograms, each counted so many times. ``num_seen``: answers behind it, for how little is known
    beyond them.

    ``n`` answers tell nothing of what less than one in ``n`` does: with a probability of ``1 / (1 + n)**2`` an answer
    is taken to be as long as it may be. So without history that is the prediction, and the same goes for an answer
    that is longer than all that were seen; a thousand answers later it makes no difference.
    """

    __slots__ = ("_below", "_mass", "_means", "_tokens_below", "_unknown")

    def __init__(self, parts: Sequence[tuple[LengthHistogram, float]], num_seen: float) -> None:
        ended = _weighted([(part.ended, scale) for part, scale in parts])
        tokens = _weighted([(part.tokens, scale) for part, scale in parts])
        cut = _weighted([(part.cut, scale) for part, scale in parts])
        self._means = [
            total / count if count else middle for total, count, middle in zip(tokens, ended, MIDDLES, strict=True)
        ]
        self._mass = _masses(ended, cut, _residual(ended, tokens, cut))
        self._below = list(accumulate(self._mass, initial=0.0))  # of each bin: the mass before it
        self._tokens_below = list(accumulate(map(mul, self._mass, self._means), initial=0.0))
        self._unknown = 1 / (1 + num_seen) ** 2

    def mean(self, limit: int, longer_than: int = 0) -> float:
        """Return the mean length of answers that are cut at ``limit``, given that they are longer than ``longer_than``
        tokens.
        """
        mass_before, tokens_before = self._up_to(longer_than)
        mass, tokens = self._up_to(limit)
        known = 1 - self._unknown
        within = known * (tokens - tokens_before)
        beyond = known * max(0.0, 1 - mass) + self._unknown
        total = known * max(0.0, 1 - mass_before) + self._unknown
        return min(max((within + beyond * limit) / total, longer_than + 1), limit)

    def quantile(self, share: float, limit: int, longer_than: int = 0) -> int:
        """The length that ``share`` of such answers do not exceed."""
        known, (mass_before, _) = 1 - self._unknown, self._up_to(longer_than)
        total = known * max(0.0, 1 - mass_before) + self._unknown
        if not known or share * total >= known * (self._below[-1] - mass_before):
            return limit
        wanted = mass_before + share * total / known
        number = max(0, min(bisect_left(self._below, wanted), NUM_BINS) - 1)
        part = (wanted - self._below[number]) / self._mass[number] if self._mass[number] else 0.0
        length = LOWS[number] + max(0, ceil(part * WIDTHS[number]) - 1)
        return min(max(length, longer_than + 1), limit)

    def _up_to(self, length: int) -> tuple[float, float]:
        """The mass of answers of at most that length, and their tokens. Within a bin, all lengths are as likely."""
        if length <= 0:
            return 0.0, 0.0
        number = bin_of(length)
        low, width = LOWS[number], WIDTHS[number]
        if length >= low + width - 1:
            return self._below[number + 1], self._tokens_below[number + 1]
        mass = self._mass[number] * (length - low + 1) / width
        return self._below[number] + mass, self._tokens_below[number] + mass * (low + length) / 2


def _weighted(parts: Sequence[tuple[Sequence[float], float]]) -> Sequence[float]:
    """The sum of counts that each count so many times, bin by bin."""
    scaled = [counts if scale == 1.0 else list(map(scale.__mul__, counts)) for counts, scale in parts if scale]
    total = scaled[0]
    for counts in scaled[1:]:
        total = list(map(add, total, counts))
    return total


def _residual(ended: Sequence[float], tokens: Sequence[float], cut: Sequence[float]) -> float:
    """Return how many more tokens an answer has on average, if it is as likely to end at each of them: all tokens that
    were seen for each end. Infinite: none has ended.
    """
    num_ended = sum(ended, 0.0)
    return (sum(tokens, 0.0) + sum(map(mul, cut, MIDDLES))) / num_ended if num_ended else inf


def _masses(ended: Sequence[float], cut: Sequence[float], residual: float) -> list[float]:
    """The probability of each bin. Beyond the longest answer, lengths are geometric with the ``residual`` mean."""
    at_risk = sum(ended, 0.0) + sum(cut, 0.0)
    nobody = at_risk * ROUNDING
    alive, masses = 1.0, []
    for ends, cuts, exposure, width in zip(ended, cut, CUT_EXPOSURE, WIDTHS, strict=True):
        mass = 0.0
        if ends:
            exposed = at_risk - cuts * (1 - exposure)
            mass = alive * (ends / max(ends, exposed))  # more cannot end than are there: what is more is rounding
        elif at_risk <= nobody and alive > ROUNDING:
            mass = -alive * expm1(-width / residual)
        masses.append(mass)
        alive -= mass
        at_risk -= ends + cuts
    return masses
