"""A run whose time was cut into stretches, as reports tell of it."""

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

MOST_APART = 0.1  # of the requests in flight where one stretch ends and the next one goes on
CHANCE = 3.0  # standard deviations of as many arrivals that do not depend on each other


class Edge(NamedTuple):
    """Requests in flight at a time: in the stretch that ends there, and in the next one, whose lead does."""

    at_s: float
    num_before: int
    num_after: int

    @property
    def is_torn(self) -> bool:
        """Are there fewer, or more, than chance and what is forgotten allow?"""
        apart = abs(self.num_before - self.num_after)
        return apart > max(MOST_APART * self.num_before, CHANCE * sqrt(self.num_before))


@dataclass(frozen=True, slots=True)
class Split:
    """How a run was cut. ``edges``: between two stretches each."""

    num_stretches: int
    lead_s: float
    edges: tuple[Edge, ...]

    @property
    def line(self) -> str:
        return (
            f"{self.num_stretches} stretches of its time, each begun {self.lead_s:g} s earlier on an empty mesh: what "
            "prefix caches held and policies had learnt before that is forgotten"
        )

    @property
    def warning(self) -> str | None:
        """Why its stretches do not make one run; None: they do, as far as this can be seen."""
        torn = [edge for edge in self.edges if edge.is_torn]
        if not torn:
            return None
        worst = max(torn, key=lambda edge: abs(edge.num_before - edge.num_after))
        return (
            f"not one run: at {worst.at_s:.0f} s a stretch ended with {worst.num_before} requests in flight, and the "
            f"next one went on with {worst.num_after}; give a longer --lead, or no --split"
        )
