"""The terms on which a service is offered: its names, its promises, and what a client may ask for."""

from dataclasses import dataclass
from typing import TypedDict

from mesh.rules import Lateness
from mesh.topology.schema import ServiceSpec, Slo


class OfferedTerms(TypedDict):
    """The fields of `Offered`."""

    service: str
    aliases: tuple[str, ...]
    slo: Slo
    priority: int
    max_priority: int
    min_ttft_s: float
    min_tpot_s: float
    late: Lateness | None


@dataclass(frozen=True, slots=True)
class Offered:
    """What all kinds of models have in common for the API."""

    service: str
    aliases: tuple[str, ...]
    slo: Slo
    priority: int
    max_priority: int  # that a client may ask for
    min_ttft_s: float  # the tightest promise that a client may ask for
    min_tpot_s: float
    late: Lateness | None  # what becomes of requests that are late and do not say

    @property
    def names(self) -> tuple[str, ...]:
        return (self.service, *self.aliases)


def terms_of(spec: ServiceSpec) -> OfferedTerms:
    """Return the terms that a topology says."""
    return {
        "service": spec.name,
        "aliases": spec.aliases,
        "slo": spec.slo,
        "priority": spec.priority,
        "max_priority": spec.highest_priority,
        "min_ttft_s": spec.tightest_ttft_s,
        "min_tpot_s": spec.tightest_tpot_s,
        "late": spec.late,
    }
