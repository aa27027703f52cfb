"""Latencies of the same requests, simulated and measured: the error of each statistic, as a table."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from bench.harness.tables import make_table
from bench.load.results.outcome import Outcome
from router.history.records import Outcome as Served
from router.history.records import Record

METRICS = {"TTFT": "ttft_s", "TPOT": "tpot_s", "end to end": "e2e_s"}
PERCENTILES = (50, 90, 99)
STATISTICS = ("mean", *(f"p{percent}" for percent in PERCENTILES))


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one request, seconds. ``tpot_s`` is None for answers of one token."""

    ttft_s: float
    tpot_s: float | None
    e2e_s: float

    @classmethod
    def of(cls, outcome: Outcome) -> "Latency":
        """As the client saw it, from when it sent its request. The answer must be whole."""
        assert outcome.first_s is not None
        assert outcome.last_s is not None
        return cls(outcome.first_s - outcome.sent_s, outcome.tpot_s, outcome.last_s - outcome.sent_s)

    @classmethod
    def simulated(cls, record: Record, request_s: float) -> "Latency | None":
        """As a client would see it, later by ``request_s``; None if the request was not served."""
        if record.outcome is not Served.FINISHED or record.ttft_s is None or record.e2e_s is None:
            return None
        return cls(record.ttft_s + request_s, record.tpot_s, record.e2e_s + request_s)

    def times(self, factor: float) -> "Latency":
        return Latency(factor * self.ttft_s, None if self.tpot_s is None else factor * self.tpot_s, factor * self.e2e_s)


Latencies = Mapping[str, Latency]  # by request
Values = NDArray[np.float64]


def pairs(measured: Latencies, simulated: Latencies, metric: str) -> Values:
    """Seconds, ``[measured or simulated, requests]``: of the requests that have the metric in both."""
    both = [
        [getattr(side[name], METRICS[metric]) for side in (measured, simulated)] for name in measured.keys() & simulated
    ]
    return np.array([pair for pair in both if None not in pair]).reshape(-1, 2).T


def statistics_of(values: Values) -> Values:
    """In the order of `STATISTICS`, which is the last axis."""
    return np.stack([values.mean(axis=-1), *np.percentile(values, PERCENTILES, axis=-1)], axis=-1)


def errors(measured: Latencies, simulated: Latencies) -> dict[str, float]:
    """The error of each statistic of each metric that there is, as a share of what was measured: ``TTFT mean``."""
    found: dict[str, float] = {}
    for metric in METRICS:
        both = pairs(measured, simulated, metric)
        if both.size:
            real, modelled = statistics_of(both)
            found |= {
                f"{metric} {name}": float(error) for name, error in zip(STATISTICS, modelled / real - 1, strict=True)
            }
    return found


def agreement_table(title: str, measured: Latencies, simulated: Latencies) -> Table:
    """Milliseconds, and the errors of the statistics and of single requests, as shares of what was measured."""
    table = make_table(title, ("ms",), (*STATISTICS, "each request"))
    for metric in METRICS:
        both = pairs(measured, simulated, metric)
        if both.size:
            real, modelled = statistics_of(both)
            table.add_row(f"{metric}, measured", *(f"{1e3 * value:.1f}" for value in real))
            table.add_row(f"{metric}, simulated", *(f"{1e3 * value:.1f}" for value in modelled))
            p50, p90 = np.percentile(np.abs(both[1] / both[0] - 1), (50, 90))
            errors = (f"{error:+.1%}" for error in modelled / real - 1)
            table.add_row("  error", *errors, f"p50 {p50:.1%}, p90 {p90:.1%}", end_section=True)
    return table
