"""Sums up the records of one run: latencies, attainment, goodput."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from router.history.records import Outcome, Record
from simulation.reports.intervals import Interval, batch_means, share_interval
from simulation.reports.over_time import Moment, over_time
from simulation.reports.packed import by_arrival, part_of
from simulation.reports.split import Split
from simulation.reports.steadiness import Judgement, Stay, Steadiness, refusals_warning

STEPS = 200  # quantiles kept of each distribution
Judge = Callable[[Sequence[Record]], Judgement]  # of records in order of arrival


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of one latency. ``quantiles`` at 0, 1 / `STEPS`, ... 1. Seconds."""

    mean: float
    quantiles: tuple[float, ...]
    num_values: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Distribution | None":
        """Make the distribution of values. None if there is no value."""
        ordered = sorted(value for value in values if value is not None)
        if not ordered:
            return None
        last = len(ordered) - 1
        quantiles = tuple(ordered[round(last * step / STEPS)] for step in range(STEPS + 1))
        return cls(sum(ordered) / len(ordered), quantiles, len(ordered))

    def percentile(self, percent: int) -> float:
        return self.quantiles[percent * STEPS // 100]


@dataclass(frozen=True, slots=True)
class Summary:
    """Attainments are fractions of all requests, also of those that were rejected. Goodput is what met its SLOs."""

    policy: str  # its name, with the parameters that it was given, and numbers of engines that are not the topology's
    rate: float  # requests that arrived, each second; in a closed loop, those that were answered
    num_requests: int
    num_rejected: int
    num_failed: int
    attainment: float
    ttft_attainment: float
    tpot_attainment: float
    goodput: float  # requests a second
    output_tokens_per_s: float
    ttft: Distribution | None
    tpot: Distribution | None
    e2e: Distribution | None
    queued: Distribution | None
    ttft_ratio: Distribution | None = None  # TTFT / its SLO
    tpot_ratio: Distribution | None = None
    moments: tuple[Moment, ...] = ()
    first_failure: str | None = None  # why the first request that failed did so
    services: Mapping[str, "Summary"] = field(default_factory=dict)  # each one's part, if there are several
    batch_tokens_per_s: float = 0.0  # of answers to lines of batches, for which nothing is promised
    num_clients: int | None = None  # in a closed loop
    conversations_per_s: float | None = None  # that were to begin, where requests belong to some
    notes: tuple[str, ...] = ()  # what the placement daemon said, and when
    split: Split | None = None  # of a run that was cut into stretches
    judgement: Judgement | None = None  # None: nobody judged whether the run was steady
    attainment_interval: Interval | None = None  # these three only of runs that were steady
    ttft_interval: Interval | None = None  # of the mean, in seconds
    tpot_interval: Interval | None = None

    @property
    def level(self) -> float:
        """What its load is measured by: clients of a closed loop, or conversations or requests a second."""
        if self.num_clients is not None:
            return float(self.num_clients)
        return self.rate if self.conversations_per_s is None else self.conversations_per_s

    @property
    def is_growing(self) -> bool:
        """Did more requests arrive than end?"""
        return self.judgement is not None and self.judgement.steadiness is Steadiness.GROWING

    def attainment_for(self, promised: float) -> float:
        """Return the attainment, 0 if ``promised`` is kept only because the run ended: what piles up breaks it."""
        return 0.0 if self.is_growing and self.attainment >= promised else self.attainment

    def is_clear(self, attainment: float) -> bool:
        """Was the run steady, and do the bounds of its attainment not hold this one?"""
        bounds = self.attainment_interval
        return bounds is not None and not bounds.low < attainment <= bounds.high

    @property
    def warnings(self) -> list[str]:
        """What is wrong with these figures, a line each."""
        steadiness = None if self.judgement is None else self.judgement.warning(self.rate)
        is_closed = self.num_clients is not None
        refusals = refusals_warning(self.num_rejected, self.num_requests) if is_closed else None
        torn = None if self.split is None else self.split.warning
        return [line for line in (steadiness, refusals, torn) if line is not None]

    @property
    def num_finished(self) -> int:
        return self.num_requests - self.num_rejected - self.num_failed


def stays_of(records: Sequence[Record]) -> Iterator[Stay]:
    """When requests arrived and ended, in order of arrival: what an open loop is judged by."""
    return (Stay(record.arrived_s, record.arrived_s + (record.e2e_s or 0.0)) for record in by_arrival(records))


def summarize(
    policy: str,
    records: Sequence[Record],
    wanted_rate: float | None,
    judge: Judge | None = None,
    *,
    is_closed: bool = False,
) -> Summary:
    """Summarise at least one record; lines of batches count apart. No list of records is made: packed ones stay so.
    ``wanted_rate``: that the run was asked for; None:
    what came. ``is_closed``: requests came because others had been answered. With a ``judge``, the figures leave out
    what it says is warm-up.
    """
    lines = part_of(records, lambda record: record.is_filler)
    if lines and len(lines) < len(records):
        promised = part_of(records, lambda record: not record.is_filler)
        summary = summarize(policy, promised, wanted_rate, judge, is_closed=is_closed)
        return replace(summary, batch_tokens_per_s=_tokens_per_s(lines))
    if judge is not None:
        return _judged(policy, by_arrival(records), wanted_rate, judge, is_closed)
    rate = _answered_per_s(records) if is_closed else wanted_rate or _arrived_per_s(records)
    return _with_services(policy, records, rate, rate)


def _judged(
    policy: str, ordered: Sequence[Record], wanted_rate: float | None, judge: Judge, is_closed: bool
) -> Summary:
    judgement = judge(ordered)
    kept = ordered[judgement.num_warm_up :]
    rate = _answered_per_s(kept) if is_closed else wanted_rate or _arrived_per_s(kept)
    is_growing = judgement.steadiness is Steadiness.GROWING
    summary = _with_services(policy, kept, rate, _answered_per_s(kept) if is_growing else rate)
    summary = replace(summary, judgement=judgement)
    if not judgement.has_intervals:
        return summary
    return replace(
        summary,
        attainment_interval=share_interval([record.meets_slo for record in kept]),
        ttft_interval=batch_means(array("d", (record.ttft_s for record in kept if record.ttft_s is not None))),
        tpot_interval=batch_means(array("d", (one.tpot_s for one in _finished(kept) if one.tpot_s is not None))),
    )


def _arrived_per_s(records: Sequence[Record]) -> float:
    """Requests that came at once came as fast as they were answered."""
    arrivals = array("d", (record.arrived_s for record in records))
    span_s = max(arrivals) - min(arrivals)
    return (len(records) - 1) / span_s if span_s > 0 else _answered_per_s(records)


def _answered_per_s(records: Sequence[Record]) -> float:
    """All of them, by the time from the first one's arrival until the last one had ended."""
    span_s = _span_s(records)
    return len(records) / span_s if span_s > 0 else 1.0


def _span_s(records: Sequence[Record]) -> float:
    ended_s = max(record.arrived_s + (record.e2e_s or 0.0) for record in records)
    return ended_s - min(record.arrived_s for record in records)


def _with_services(policy: str, records: Sequence[Record], rate: float, served: float) -> Summary:
    """``served``: the requests a second whose good ones are the goodput."""
    summary = _summarize(policy, records, rate, served)
    names = sorted({record.service for record in records})
    if len(names) == 1:
        return summary
    parts = {name: part_of(records, partial(_is_of, name)) for name in names}
    shares = {name: len(part) / len(records) for name, part in parts.items()}
    services = {name: _summarize(policy, parts[name], rate * shares[name], served * shares[name]) for name in names}
    return replace(summary, services=services)


def _is_of(service: str, record: Record) -> bool:
    return record.service == service


def _summarize(policy: str, records: Sequence[Record], rate: float, served: float) -> Summary:
    num_requests, num_good = len(records), sum(record.meets_slo for record in records)
    span_s = _span_s(records)
    return Summary(
        policy=policy,
        rate=rate,
        num_requests=num_requests,
        num_rejected=sum(record.outcome is Outcome.REJECTED for record in records),
        num_failed=sum(record.outcome is Outcome.FAILED for record in records),
        attainment=num_good / num_requests,
        ttft_attainment=sum(record.meets_ttft for record in records) / num_requests,
        tpot_attainment=sum(record.meets_tpot for record in records) / num_requests,
        goodput=served * num_good / num_requests,
        output_tokens_per_s=_num_answered(records) / span_s if span_s > 0 else 0.0,
        ttft=Distribution.of(record.ttft_s for record in records),
        tpot=Distribution.of(record.tpot_s for record in _finished(records)),
        e2e=Distribution.of(record.e2e_s for record in _finished(records)),
        queued=Distribution.of(record.queued_s for record in records),
        ttft_ratio=Distribution.of(_ratio(record.ttft_s, record.slo_ttft_s) for record in records),
        tpot_ratio=Distribution.of(_ratio(record.tpot_s, record.slo_tpot_s) for record in _finished(records)),
        moments=over_time(records),
        first_failure=next((record.reason for record in records if record.outcome is Outcome.FAILED), None),
    )


def _tokens_per_s(lines: Sequence[Record]) -> float:
    span_s = _span_s(lines)
    return _num_answered(lines) / span_s if span_s > 0 else 0.0


def _finished(records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if record.outcome is Outcome.FINISHED)


def _num_answered(records: Iterable[Record]) -> int:
    """Return how many tokens the answers have that were finished."""
    return sum(record.output_tokens for record in _finished(records))


def _ratio(value_s: float | None, slo_s: float) -> float | None:
    return None if value_s is None else value_s / slo_s
