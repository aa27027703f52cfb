"""Latencies of the same requests, simulated and measured: the error of each statistic, as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from bench.harness.tables import make_table

PERCENTILES = (50, 90, 99)
METRICS = ("TTFT", "TPOT", "end to end")


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one request, seconds. ``tpot_s`` is None for answers of one token."""

    ttft_s: float
    tpot_s: float | None
    e2e_s: float

    def of(self, metric: str) -> float | None:
        return {"TTFT": self.ttft_s, "TPOT": self.tpot_s, "end to end": self.e2e_s}[metric]


Pairs = Sequence[tuple[float, float]]  # (measured, simulated), seconds


def pairs_of(measured: Mapping[str, Latency], simulated: Mapping[str, Latency], metric: str) -> Pairs:
    """Of the requests that have the metric in both."""
    both = ((measured[request].of(metric), simulated[request].of(metric)) for request in measured.keys() & simulated)
    return [(real, modelled) for real, modelled in both if real is not None and modelled is not None]


@dataclass(frozen=True, slots=True)
class Agreement:
    """One metric. Errors are fractions of what was measured; ``each`` are the requests' own, without sign."""

    metric: str
    statistics: Mapping[str, tuple[float, float]]  # name -> (measured, simulated), seconds
    each: Sequence[float]

    @classmethod
    def of(cls, metric: str, pairs: Pairs) -> "Agreement":
        """Of at least one pair."""
        real, modelled = (np.array(side) for side in zip(*pairs, strict=True))
        statistics = {"mean": (float(real.mean()), float(modelled.mean()))}
        for percent in PERCENTILES:
            statistics[f"p{percent}"] = (float(np.percentile(real, percent)), float(np.percentile(modelled, percent)))
        return cls(metric, statistics, [float(error) for error in np.abs(modelled / real - 1)])

    def error(self, statistic: str) -> float:
        measured, simulated = self.statistics[statistic]
        return simulated / measured - 1


def agreements(measured: Mapping[str, Latency], simulated: Mapping[str, Latency]) -> list[Agreement]:
    """One for each metric that any request has in both."""
    pairs = {metric: pairs_of(measured, simulated, metric) for metric in METRICS}
    return [Agreement.of(metric, of_metric) for metric, of_metric in pairs.items() if of_metric]


def agreement_table(title: str, found: Sequence[Agreement]) -> Table:
    """Milliseconds, and the errors of the statistics and of single requests."""
    table = make_table(title, ("ms",), ("mean", *(f"p{percent}" for percent in PERCENTILES), "each request"))
    for one in found:
        for row, side in (("measured", 0), ("simulated", 1)):
            table.add_row(f"{one.metric}, {row}", *(f"{1e3 * both[side]:.1f}" for both in one.statistics.values()))
        p50, p90 = np.percentile(one.each, (50, 90))
        errors = (f"{one.error(statistic):+.1%}" for statistic in one.statistics)
        table.add_row("  error", *errors, f"p50 {p50:.1%}, p90 {p90:.1%}", end_section=True)
    return table
