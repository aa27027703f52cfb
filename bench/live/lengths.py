"""Lengths of prompts and answers that are made up."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Bounds:
    """Tokens. ``sigma`` is the standard deviation of the logarithm of lengths, which are drawn and then cut."""

    least: int
    median: int
    most: int
    sigma: float

    def draw(self, random: Random) -> int:
        return self.cut(random.lognormvariate(0, self.sigma) * self.median)

    def cut(self, length: float) -> int:
        return min(self.most, max(self.least, round(length)))
