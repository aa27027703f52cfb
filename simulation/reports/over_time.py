"""Shows how a run went while it went on: records by the time of their arrival."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from router.history.records import Outcome, Record

NUM_BINS = 60
FEWEST = 12  # records in a bin, on average


class Moment(NamedTuple):
    """The requests that arrived in one bin of time. None: there is nothing to say."""

    at_s: float  # the middle of the bin
    arrivals: float  # requests a second
    lost: float  # of those, rejected or failed
    queued_p50_s: float | None
    queued_p90_s: float | None
    attainment: float | None  # of both SLOs


def over_time(records: Sequence[Record]) -> tuple[Moment, ...]:
    """Sum up records, at least one, in bins of time."""
    arrivals = array("d", (record.arrived_s for record in records))
    first, span_s = min(arrivals), max(arrivals) - min(arrivals)
    num_bins = max(1, min(NUM_BINS, len(records) // FEWEST)) if span_s > 0 else 1
    bin_s = span_s / num_bins or 1.0
    bins = [_Bin() for _ in range(num_bins)]
    for record in records:
        bins[min(int((record.arrived_s - first) / bin_s), num_bins - 1)].add(record)
    return tuple(held.moment(first + (index + 0.5) * bin_s, bin_s) for index, held in enumerate(bins))


class _Bin:
    """What is to be known of the records of one bin."""

    def __init__(self) -> None:
        self._waited_s = array("d")
        self._num_lost = 0
        self._num_good = 0

    def add(self, record: Record) -> None:
        self._waited_s.append(_waited_s(record))
        self._num_lost += record.outcome in (Outcome.REJECTED, Outcome.FAILED)
        self._num_good += record.meets_slo

    def moment(self, at_s: float, bin_s: float) -> Moment:
        queued = sorted(self._waited_s)
        return Moment(
            at_s,
            len(queued) / bin_s,
            self._num_lost / bin_s,
            queued[len(queued) // 2] if queued else None,
            queued[len(queued) * 9 // 10] if queued else None,
            self._num_good / len(queued) if queued else None,
        )


def _waited_s(record: Record) -> float:
    """A request that was never dispatched waited until its end."""
    return (record.e2e_s or 0.0) if record.queued_s is None else record.queued_s
