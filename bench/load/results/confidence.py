"""How sure a share is that was seen in so many requests."""

from dataclasses import dataclass
from enum import StrEnum

from simulation.reports.intervals import share_bounds


class Verdict(StrEnum):
    KEPT = "kept"
    BROKEN = "broken"
    OPEN = "open"  # so few requests tell neither


@dataclass(frozen=True, slots=True)
class Seen:
    """``num_good`` of ``num_requests`` at a rate, in one trial or several."""

    rate: float
    num_good: int = 0
    num_requests: int = 0

    @property
    def attainment(self) -> float:
        return self.num_good / self.num_requests if self.num_requests else 0.0

    def plus(self, num_good: int, num_requests: int) -> "Seen":
        return Seen(self.rate, self.num_good + num_good, self.num_requests + num_requests)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Wilson's score interval of the share, in which it lies with this probability."""
        if not self.num_requests:
            return 0.0, 1.0
        return share_bounds(self.num_good, self.num_requests, confidence)

    def verdict(self, goal: float, confidence: float) -> Verdict:
        """Is the share at least ``goal``?"""
        low, high = self.interval(confidence)
        if low >= goal:
            return Verdict.KEPT
        return Verdict.BROKEN if high < goal else Verdict.OPEN
