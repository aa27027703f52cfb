"""Rows as lines, as a table and as JSON."""

from collections.abc import Mapping, Sequence

import msgspec
from rich.table import Table

from bench.harm.harm import Row
from bench.harness.tables import make_table

WORDS = ("scenario", "attack", "class", "answers")  # columns that are no numbers


def lines(row: Row) -> list[str]:
    """What came of it, in short, and what went wrong."""
    cells = ", ".join(f"{heading} {cell}" for heading, cell in list(row.cells().items())[1:])
    return [
        f"  {_result(row)}: {cells} ({row.took_s:.0f} s)",
        *(f"  {remark}" for remark in row.remarks),
        *(f"  ! {problem}" for problem in row.problems),
    ]


def _cells(row: Row) -> Mapping[str, str]:
    return {**row.cells(), "result": _result(row)}


def _result(row: Row) -> str:
    return "pass" if row.is_passed else "FAIL"


def table(rows: Sequence[Row]) -> Table:
    """At least one row."""
    headings = list(_cells(rows[0]))
    words = [heading for heading in headings if heading in WORDS]
    shown = make_table("", words, headings[len(words) :])
    for row in rows:
        shown.add_row(*_cells(row).values())
    return shown


def document(rows: Sequence[Row], settings: Mapping[str, object]) -> dict[str, object]:
    """For a JSON file."""
    judged = [{**msgspec.to_builtins(row), "passed": row.is_passed, "problems": row.problems} for row in rows]
    return {"settings": settings, "rows": judged}
