"""Computes what a plan is worth for a traffic."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from router.placement.search.plan import Plan

ALPHA = 1e-4  # of equation 6: attainment counts first


@dataclass(frozen=True, slots=True)
class ServiceScore:
    """The score of one service. ``num_late`` were over their SLO, or not served. ``promise``: the attainment that the
    service must have.
    """

    num_requests: float
    num_late: float
    normalized_latency: float  # sum of latency / mean execution time alone, of those that were served (equation 1)
    promise: float = 0.0

    @property
    def attainment(self) -> float:
        return 1.0 - self.num_late / self.num_requests if self.num_requests else 1.0

    @property
    def is_short(self) -> bool:
        """Return whether it misses its attainment (equation 5)."""
        return self.attainment < self.promise

    @property
    def unserved_index(self) -> float:
        """Return the unserved index (equation 6)."""
        return self.num_late + ALPHA * self.normalized_latency


class Rank(NamedTuple):
    """Greater is better: the constraint first (equation 5), then attainment, then normalised latency (algorithm 1).

    Where no plan keeps all promises, the one with the highest attainment is the best, however many it breaks.
    """

    keeps_promises: bool
    attainment: float
    minus_normalized_latency: float


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a plan over all services."""

    services: Mapping[str, ServiceScore]

    @property
    def num_requests(self) -> float:
        return sum(service.num_requests for service in self.services.values())

    @property
    def num_late(self) -> float:
        return sum(service.num_late for service in self.services.values())

    @property
    def attainment(self) -> float:
        return 1.0 - self.num_late / self.num_requests if self.num_requests else 1.0

    @property
    def normalized_latency(self) -> float:
        """Mean of a request; those of services that are placed nowhere count as nothing."""
        total = sum(service.normalized_latency for service in self.services.values())
        return total / self.num_requests if self.num_requests else 0.0

    def scaled(self, factor: float) -> "Score":
        """Return the score of so many times the requests."""
        services = {
            name: replace(
                one,
                num_requests=factor * one.num_requests,
                num_late=factor * one.num_late,
                normalized_latency=factor * one.normalized_latency,
            )
            for name, one in self.services.items()
        }
        return Score(services)

    @property
    def short(self) -> list[str]:
        """Services that miss their attainment."""
        return sorted(name for name, service in self.services.items() if service.is_short)

    @property
    def rank(self) -> Rank:
        return Rank(not self.short, round(self.attainment, 9), -self.normalized_latency)


def together(scores: Sequence[Score]) -> Score:
    """Return the score of all their traffic, which is of the same services."""
    return Score({name: _sum([score.services[name] for score in scores]) for name in scores[0].services})


def _sum(scores: Sequence[ServiceScore]) -> ServiceScore:
    requests, late, latency = zip(
        *((score.num_requests, score.num_late, score.normalized_latency) for score in scores), strict=True
    )
    return ServiceScore(sum(requests), sum(late), sum(latency), scores[0].promise)


Evaluate = Callable[[Sequence[Plan]], Sequence[Score]]
"""Scores of plans for the traffic that it was made for. It gets many at a time, to work on them in parallel."""
