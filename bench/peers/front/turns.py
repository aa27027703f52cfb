"""Turns of routers, what is left of them once disturbed ones are left out, and how two routers compare. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.harness.machine import Conditions, disturbed
from bench.peers.front.trials import Figures


@dataclass(frozen=True, slots=True)
class Turn:
    """What one router did in one trial of one round. In a round all have the same load."""

    router: str
    round: int
    trial: str
    figures: Figures
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class Spread:
    """The median over rounds, between the least and the most."""

    values: Sequence[float]

    def text(self, digits: int = 1) -> str:
        if not self.values:
            return "-"
        middle = f"{median(self.values):.{digits}f}"
        if len(self.values) == 1:
            return middle
        return f"{middle} ({min(self.values):.{digits}f} to {max(self.values):.{digits}f})"


class Turns:
    """All turns that count."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        out = disturbed([turn.conditions for turn in turns])
        self._kept = [turn for turn, is_out in zip(turns, out, strict=True) if not is_out]
        self.num_left_out = sum(out)
        self.figures = list(dict.fromkeys(figure for turn in turns for figure in turn.figures))

    def spread(self, router: str, figure: str) -> Spread:
        """Return what a router's figure was, over the rounds."""
        return Spread([*self._values(router, figure).values()])

    def ratio(self, router: str, other: str, figure: str) -> Spread:
        """Return how many times another router's figure it had, of rounds in which both count."""
        ours, theirs = self._values(router, figure), self._values(other, figure)
        return Spread([value / theirs[number] for number, value in ours.items() if theirs.get(number)])

    def _values(self, router: str, figure: str) -> dict[int, float]:
        return {
            turn.round: turn.figures[figure] for turn in self._kept if turn.router == router and figure in turn.figures
        }
