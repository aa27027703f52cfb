"""Summaries as tables on a terminal, and as JSON."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import msgspec
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from simulation.capacity import FoundCapacity, Trial, crossing
from simulation.reports.intervals import Interval
from simulation.reports.summary import Distribution, Summary

PERCENTILES = (50, 90, 99)
WIDE = 100  # columns of a terminal from which on there is room for all percentiles


def tables(summaries: Sequence[Summary], attainment: float, width: int) -> list[RenderableType]:
    """Return what fits the runs: of one, what its requests saw; of several, how they compare."""
    if len(summaries) == 1:
        [summary] = summaries
        parts = [services_table(summary, width)] if summary.services else []
        told = [*_placement(summary), *_split(summaries), *_warnings(summaries)]
        return [_headline(summary), latency_table(summary), *parts, *told]
    shown: list[RenderableType] = [comparison_table(summaries, width)]
    is_closed = any(summary.num_clients is not None for summary in summaries)
    if not is_closed and len({run.level for run in summaries}) > 1:
        shown.append(capacity_table(summaries, attainment))
    return [*shown, *_split(summaries), *_warnings(summaries)]


def _split(summaries: Sequence[Summary]) -> list[Text]:
    """How the runs were cut, which is the same for all."""
    return [Text(line) for line in dict.fromkeys(run.split.line for run in summaries if run.split is not None)]


def _warnings(summaries: Sequence[Summary]) -> list[Text]:
    """What is wrong with the runs, each once."""
    lines: dict[str, list[str]] = {}
    for run in summaries:
        for warning in run.warnings:
            lines.setdefault(warning, []).append(_run_name(run))
    is_alone = len(summaries) == 1
    return [
        Text(warning if is_alone else f"{', '.join(dict.fromkeys(names))}: {warning}")
        for warning, names in lines.items()
    ]


def _run_name(run: Summary) -> str:
    """With the clients of a closed loop, as their numbers are what tells its runs apart."""
    if run.num_clients is None:
        return run.policy
    return f"{run.policy} with {run.num_clients} client{'s' * (run.num_clients > 1)}"


def latency_table(summary: Summary) -> Table:
    """One run: percentiles of what its requests saw."""
    table = _table()
    table.add_column("")
    intervals = {"TTFT, ms": summary.ttft_interval, "TPOT, ms": summary.tpot_interval}
    is_sure = any(interval is not None for interval in intervals.values())
    for heading in ("mean", *(["+-"] if is_sure else []), *(f"p{percent}" for percent in PERCENTILES)):
        table.add_column(heading, justify="right")
    rows = {
        "TTFT, ms": (summary.ttft, 1e3),
        "TPOT, ms": (summary.tpot, 1e3),
        "end to end, ms": (summary.e2e, 1e3),
        "queued at gateway, ms": (summary.queued, 1e3),
        "TTFT / SLO": (summary.ttft_ratio, 1.0),
        "TPOT / SLO": (summary.tpot_ratio, 1.0),
    }
    for name, (distribution, scale) in rows.items():
        mean, *late = _scaled(distribution, scale)
        interval = intervals.get(name)
        table.add_row(name, mean, *([_half(interval, scale)] if is_sure else []), *late)
    return table


def _half(interval: Interval | None, scale: float) -> str:
    return "" if interval is None else f"{interval.half * scale:.1f}"


def _headline(summary: Summary) -> str:
    lost = f"{summary.num_finished} finished, {summary.num_rejected} rejected, {summary.num_failed} failed"
    met = f"TTFT {summary.ttft_attainment:.1%}, TPOT {summary.tpot_attainment:.1%}, both {summary.attainment:.1%}"
    met += f" ({sure.low:.1%} to {sure.high:.1%})" if (sure := summary.attainment_interval) is not None else ""
    good = f"goodput {summary.goodput:.2f} req/s, {summary.output_tokens_per_s:.0f} output tokens/s"
    why = f"\nfirst failure: {summary.first_failure}" if summary.first_failure else ""
    clients = "" if summary.num_clients is None else f" of {summary.num_clients} clients"
    talks = summary.conversations_per_s
    of = clients if talks is None else f" of {talks:g} conversations/s"
    at = f"{summary.policy} at {summary.rate:.2f} req/s{of}"
    return f"{at}: {lost}{_left_out(summary)}{why}\nSLO attainment: {met}\n{good}"


def _left_out(summary: Summary) -> str:
    judgement = summary.judgement
    return f"; warm-up of {judgement.num_warm_up} left out" if judgement is not None and judgement.num_warm_up else ""


def _placement(summary: Summary) -> list[Text]:
    lines = "\n  ".join(("what the placement daemon did", *summary.notes))
    return [Text(lines, no_wrap=True, overflow="ignore")] if summary.notes else []


def comparison_table(summaries: Sequence[Summary], width: int) -> Table:
    """Many runs, one a row, and below it one for each service, if there are several."""
    is_closed = any(run.num_clients is not None for run in summaries)
    level = _level_heading(summaries)
    table = _table(f"policies against {'clients' if is_closed else 'rates'}; TTFT in s, TPOT in ms")
    _add_columns(table, "policy", width, level)
    for policy, runs in by_policy(summaries).items():
        for number, run in enumerate(runs):
            name = policy if width >= WIDE else policy.replace(":", "\n  ")
            own = [f"{run.level:g}"] if level else []
            table.add_row("" if number else name, *own, *_cells(run, width))
            for service, part in run.services.items():
                table.add_row(f"  {service}", *([""] if level else []), *_cells(part, width), style="dim")
        table.add_section()
    return table


def _level_heading(summaries: Sequence[Summary]) -> str | None:
    """What runs are told apart by; None: by the requests a second that all of them have."""
    if any(run.num_clients is not None for run in summaries):
        return "clients"
    return "conv/s" if any(run.conversations_per_s is not None for run in summaries) else None


def services_table(summary: Summary, width: int) -> Table:
    """Each service's part of one run."""
    table = _table("by service; TTFT in s, TPOT in ms")
    _add_columns(table, "service", width)
    for service, part in summary.services.items():
        table.add_row(service, *_cells(part, width))
    return table


def _table(title: str | None = None) -> Table:
    return Table(title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD, pad_edge=False)


def _percentiles(width: int) -> Sequence[int]:
    return PERCENTILES if width >= WIDE else PERCENTILES[1:2]


def _add_columns(table: Table, first: str, width: int, level: str | None = None) -> None:
    table.add_column(first, overflow="fold")
    percentiles = [f"p{percent}" for percent in _percentiles(width)]
    for heading in (*([level] if level else []), "req/s", "both SLOs", "goodput"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in ("TTFT", "TPOT"):
        for number, percentile in enumerate(percentiles):
            table.add_column(percentile if number else f"{name} {percentile}", justify="right", no_wrap=True)
    table.add_column("lost", justify="right", no_wrap=True)


def _cells(summary: Summary, width: int) -> list[str]:
    num_lost = summary.num_rejected + summary.num_failed
    return [
        f"{summary.rate:.2f}",
        f"{summary.attainment:.1%}",
        f"{summary.goodput:.2f}",
        *(_value(summary.ttft, percent, 1.0, 2) for percent in _percentiles(width)),
        *(_value(summary.tpot, percent, 1e3, 1) for percent in _percentiles(width)),
        f"{num_lost / summary.num_requests:.1%}",
    ]


def _value(distribution: Distribution | None, percent: int, scale: float, digits: int) -> str:
    return "-" if distribution is None else f"{distribution.percentile(percent) * scale:.{digits}f}"


def capacity_table(summaries: Sequence[Summary], attainment: float) -> Table:
    """Each policy's rate at the promised attainment, beside the best of the others."""
    table = _table(f"rate served at {attainment:.0%} attainment")
    table.add_column("policy", overflow="fold")
    table.add_column(_level_heading(summaries) or "req/s", justify="right")
    table.add_column("beside the best other", justify="right")
    grouped = by_policy(summaries)
    sure = {policy: _sure(runs, attainment) for policy, runs in grouped.items()}
    if any(sure.values()):
        table.add_column("95 % sure")
    founds = {
        policy: crossing([Trial(run.level, run.attainment_for(attainment)) for run in runs], attainment)
        for policy, runs in grouped.items()
    }
    for policy, found in founds.items():
        others = [other for name, other in founds.items() if name != policy]
        best = max(others, key=lambda other: other.rate, default=None)
        beside = "-" if best is None else _beside(found, best, attainment)
        table.add_row(policy, found.words(attainment), beside, *([sure[policy]] if any(sure.values()) else []))
    return table


def _sure(runs: Sequence[Summary], attainment: float) -> str:
    """Between which rates the capacity lies by the bounds of the runs' attainments."""
    clear = [run for run in runs if run.is_clear(attainment)]
    kept = max((run.level for run in clear if run.attainment >= attainment), default=0.0)
    broken = min((run.level for run in clear if run.attainment < attainment and run.level > kept), default=None)
    bounds = [f"at least {kept:.3g}"] if kept else []
    bounds += [f"below {broken:.3g}"] if broken is not None else []
    return ", ".join(bounds)


def _beside(found: FoundCapacity, best: FoundCapacity, attainment: float) -> str:
    """Where one of them is not known but to a bound, so is what they are to each other."""
    mine, other = found.is_beyond(attainment), best.is_beyond(attainment)
    if not found.rate or not best.rate or (mine and other):
        return "-"
    return f"{'>' * mine}{'<' * other}{found.rate / best.rate:.2f}x"


def by_policy(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    """Group the runs by policy, in order of first appearance; each policy's by level."""
    order = list(dict.fromkeys(summary.policy for summary in summaries))
    ordered = sorted(summaries, key=lambda summary: (order.index(summary.policy), summary.level))
    return {policy: list(runs) for policy, runs in groupby(ordered, key=lambda summary: summary.policy)}


def _scaled(distribution: Distribution | None, scale: float) -> list[str]:
    if distribution is None:
        return ["-"] * (1 + len(PERCENTILES))
    values = (distribution.mean, *map(distribution.percentile, PERCENTILES))
    digits = 1 if scale > 1 else 2
    return [f"{value * scale:.{digits}f}" for value in values]


def write_summaries(path: Path, summaries: Sequence[Summary]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(summaries)) + b"\n")
