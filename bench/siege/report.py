"""Rows as lines, a table and JSON."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from bench.harness.tables import markdown_table
from bench.siege.verdict import Row

COLUMNS = ("attack", "class", "answers", "failed", "gap s", "calm s", "grew MiB", "kept MiB", "restarts", "")
MIB = 2**20


def cells(row: Row) -> list[str]:
    return [
        row.name,
        row.family,
        ", ".join(f"{count} {end}" for end, count in row.ends.items()) or "-",
        str(len(row.failures)),
        f"{row.gap_s:.2f}",
        f"{row.calm_gap_s:.2f}",
        _most(row.grown),
        _most(row.kept),
        str(len(row.restarted)),
        "not here" if row.impossible else "pass" if row.is_passed else "FAIL",
    ]


def _most(sizes: Mapping[str, int]) -> str:
    """Of the process that has most of it."""
    if not sizes:
        return "-"
    name, size = max(sizes.items(), key=lambda item: item[1])
    return f"{size // MIB} ({name})" if size >= MIB else "0"


def line(row: Row) -> str:
    result = cells(row)
    return (
        f"  {result[-1]}: {result[2]}; witness {result[3]} failed, gap {result[4]} s (calm {result[5]}); "
        f"grew {result[6]}, kept {result[7]} MiB; {row.took_s:.0f} s"
    )


def remarks(row: Row) -> list[str]:
    return [f"  {row.impossible}"] if row.impossible else [f"  ! {problem}" for problem in row.problems]


def table(rows: Sequence[Row]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in COLUMNS:
        shown.add_column(column, justify="left" if column in ("attack", "class", "answers", "") else "right")
    for row in rows:
        shown.add_row(*cells(row))
    return shown


def markdown(rows: Sequence[Row]) -> str:
    return markdown_table([*COLUMNS[:-1], "result"], map(cells, rows))


def document(rows: Sequence[Row], settings: object) -> dict[str, object]:
    """For a JSON file."""
    return {"settings": settings, "rows": [row.json() for row in rows]}
