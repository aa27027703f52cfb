"""Summaries as tables on a terminal, and as JSON."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import msgspec
from rich.table import Table

from bench.simulation.summary import Distribution, Summary, capacity

PERCENTILES = (50, 90, 99)


def latency_table(summary: Summary) -> Table:
    """One run: percentiles of what its requests saw."""
    table = Table(title=_title(summary), title_justify="left")
    table.add_column("")
    for heading in ("mean", *(f"p{percent}" for percent in PERCENTILES)):
        table.add_column(f"{heading}, ms", justify="right")
    rows = {"TTFT": summary.ttft, "TPOT": summary.tpot, "end to end": summary.e2e, "queued at gateway": summary.queued}
    for name, distribution in rows.items():
        table.add_row(name, *_milliseconds(distribution))
    return table


def _title(summary: Summary) -> str:
    lost = f"{summary.num_finished} finished, {summary.num_rejected} rejected, {summary.num_failed} failed"
    met = f"TTFT {summary.ttft_attainment:.1%}, TPOT {summary.tpot_attainment:.1%}, both {summary.attainment:.1%}"
    good = f"goodput {summary.goodput:.2f} req/s, {summary.output_tokens_per_s:.0f} output tokens/s"
    return f"{summary.policy} at {summary.rate:.2f} req/s: {lost}\nSLO attainment: {met}\n{good}"


def comparison_table(summaries: Iterable[Summary]) -> Table:
    """Many runs, one a row."""
    table = Table(title="policies against rates", title_justify="left")
    table.add_column("policy")
    headings = ("rate", "attainment", "goodput", "TTFT p50", "p90", "p99", "TPOT p50", "p90", "p99", "rejected")
    for heading in headings:
        table.add_column(heading, justify="right")
    for summary in summaries:
        ttft, tpot = _milliseconds(summary.ttft)[1:], _milliseconds(summary.tpot)[1:]
        numbers = (f"{summary.rate:.2f}", f"{summary.attainment:.1%}", f"{summary.goodput:.2f}")
        table.add_row(summary.policy, *numbers, *ttft, *tpot, f"{summary.num_rejected / summary.num_requests:.1%}")
    return table


def capacity_table(summaries: Sequence[Summary], attainment: float) -> Table:
    """Each policy's rate at the promised attainment, beside the best of the others."""
    table = Table(title=f"rate served at {attainment:.0%} attainment", title_justify="left")
    table.add_column("policy")
    table.add_column("req/s", justify="right")
    table.add_column("beside the best other", justify="right")
    rates = {policy: capacity(runs, attainment) for policy, runs in by_policy(summaries).items()}
    for policy, rate in rates.items():
        best = max((other for name, other in rates.items() if name != policy), default=0.0)
        table.add_row(policy, f"{rate:.2f}", f"{rate / best:.2f}x" if best else "-")
    return table


def by_policy(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    """In order of first appearance; each policy's by rate."""
    order = list(dict.fromkeys(summary.policy for summary in summaries))
    ordered = sorted(summaries, key=lambda summary: (order.index(summary.policy), summary.rate))
    return {policy: list(runs) for policy, runs in groupby(ordered, key=lambda summary: summary.policy)}


def _milliseconds(distribution: Distribution | None) -> list[str]:
    if distribution is None:
        return ["-"] * (1 + len(PERCENTILES))
    values = (distribution.mean, *map(distribution.percentile, PERCENTILES))
    return [f"{value * 1e3:.1f}" for value in values]


def write_summaries(path: Path, summaries: Sequence[Summary]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(summaries)) + b"\n")
