"""Rows as a table on a terminal, and as JSON."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from bench.chaos.verdict import GAP_LIMIT_S, Row
from bench.harness.tables import markdown_table

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
    return markdown_table([*COLUMNS[:-1], "result"], map(cells, rows))


def document(rows: Sequence[Row], settings: object) -> dict[str, object]:
    """For a JSON file."""
    return {"settings": settings, "rows": [row.json() for row in rows]}
