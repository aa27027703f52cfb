"""Rows as a table on a terminal, and as JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.table import Table

from bench.chaos.verdict import GAP_LIMIT_S, Row

COLUMNS = ("scenario", "requests", "failed", "wrong", "refused", "left", "gap s", "recovery s", "ready s", "")


def table(rows: Sequence[Row]) -> Table:
    """``wrong``: duplicated, missing or other tokens. ``left``: clients that went away."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in COLUMNS:
        shown.add_column(column, justify="left" if column in ("scenario", "") else "right", overflow="fold")
    for row in rows:
        shown.add_row(*cells(row))
    return shown


def cells(row: Row) -> list[str]:
    tally = row.tally
    lost = f" + {tally.lost_with_gateway}" if tally.lost_with_gateway else ""
    limit = "" if row.gap_limit_s == GAP_LIMIT_S else f" (< {row.gap_limit_s:.1f})"
    return [
        row.scenario,
        str(tally.requests),
        f"{tally.failed}{lost}",
        str(tally.wrong),
        str(tally.refused),
        str(tally.cancelled),
        _seconds(tally.worst_gap_s) + limit,
        _seconds(row.recovery_s),
        _seconds(row.ready_s),
        "pass" if row.is_passed else "FAIL",
    ]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def remarks(row: Row) -> list[str]:
    """What a scenario did, and what went wrong."""
    notes = ", ".join(f"{name} {value}" for name, value in row.notes.items())
    problems = [f"  ! {problem}" for problem in row.tally.problems]
    return ([f"  {notes}"] if notes else []) + problems


def markdown(rows: Sequence[Row]) -> str:
    """For bench/README.md."""
    heads = [*COLUMNS[:-1], "result"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(cells(row)) + " |" for row in rows)])


def write_json(path: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> None:
    whole = {"settings": settings, "rows": [row.json() for row in rows]}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n")
