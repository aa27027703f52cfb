"""Weighs samples: whether a topology keeps its promises, and which of two is better on the same requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf, log2

from router.history.records import Outcome, Record
from router.placement.search.chance import chance
from simulation.reports.intervals import share_bounds


class Keeping(StrEnum):
    """Says what samples show."""

    KEEPS = "keeps"
    BREAKS = "breaks"
    OPEN = "open"  # chance may have made them look so


@dataclass(frozen=True, slots=True)
class SampleResult:
    """Outcome of one sample. ``attainment``: the share of its requests whose promises were kept.

    ``use``: the part of its promise that the request at the goal took, of TTFT or TPOT whichever is more. It is up
    to 1 if the goal was kept, and it tells good from better where both keep everything. ``cpu_s``: of the
    simulation. ``num_requests``: those that count.
    """

    attainment: float
    use: float
    cpu_s: float
    num_requests: int


def weigh_records(records: Sequence[Record], goal: float, cpu_s: float) -> SampleResult:
    """Weigh at least one record."""
    uses = sorted(_use(record) for record in records)
    kept = sum(record.meets_slo for record in records) / len(records)
    return SampleResult(kept, uses[max(0, ceil(goal * len(uses) - 1e-9) - 1)], cpu_s, len(records))


def _use(record: Record) -> float:
    if record.ttft_s is None or record.outcome is not Outcome.FINISHED:
        return inf
    return max(record.ttft_s / record.slo_ttft_s, (record.tpot_s or 0.0) / record.slo_tpot_s)


def judge(results: Sequence[SampleResult], goal: float, risk: float) -> Keeping:
    """Tell the mean of samples from the goal by Fisher's randomization test, with the chance ``risk`` of a mistake.

    Who keeps it must do so by Wilson's bound of as many independent requests, too: near 1, samples of few requests
    are all above the goal in most cases, also of who breaks it.
    """
    beyond = [result.attainment - goal for result in results]
    if chance(beyond) <= risk:
        number = sum(result.num_requests for result in results)
        num_good = sum(round(result.attainment * result.num_requests) for result in results)
        low, _ = share_bounds(num_good, number, 1 - 2 * risk)
        return Keeping.KEEPS if low >= goal else Keeping.OPEN
    return Keeping.BREAKS if chance([-one for one in beyond]) <= risk else Keeping.OPEN


def is_better(attainments: Sequence[float], others: Sequence[float], risk: float) -> bool:
    """Return whether the first kept more on the same samples, as far as both have them, and not by chance."""
    gains = [own - other for own, other in zip(attainments, others, strict=False)]
    return any(gains) and chance(gains) <= risk


def samples_for(risk: float) -> int:
    """Return how many samples at least can rule chance out."""
    return max(1, ceil(log2(1 / risk)))
