"""Tables of exactly so many columns of a terminal: columns that matter less are left out before anything is cut."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

GAP: Final = 1


class TableCell(NamedTuple):
    """``by``: what the column is sorted by; None is last, whichever way."""

    text: str
    by: float | str | None = None
    style: str = ""


class TableLine(NamedTuple):
    """A row of a table. ``key``: what it is about, as long as it is shown."""

    key: tuple[str, ...]
    cells: tuple[TableCell, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """``least``: columns of the terminal that it needs; it gets more, up to ``most``, where there is room.

    ``rank``: columns with the highest are left out first.
    """

    name: str
    least: int
    most: int
    is_number: bool = True
    rank: int = 0


def fitted(columns: Sequence[Column], lines: Sequence[TableLine], width: int) -> list[int]:
    """Return the width of each column, 0 where it is left out, so that all fit into ``width``."""
    shown = set(range(len(columns)))
    while len(shown) > 1 and _needed(columns, shown) > width:
        shown.remove(max(shown, key=lambda index: (columns[index].rank, index)))
    widths = [column.least if index in shown else 0 for index, column in enumerate(columns)]
    spare = width - _needed(columns, shown)
    for index in sorted(shown, key=lambda index: columns[index].rank):
        longest = max((cell_len(line.cells[index].text) for line in lines), default=0)
        wanted = min(longest, columns[index].most) - widths[index]
        given = max(0, min(wanted, spare))
        widths[index] += given
        spare -= given
    return widths


def _needed(columns: Sequence[Column], shown: set[int]) -> int:
    return sum(columns[index].least for index in shown) + GAP * (len(shown) - 1)


def heading(columns: Sequence[Column], widths: Sequence[int], sorted_by: int, *, is_descending: bool) -> Text:
    text = Text()
    for index, (column, width) in enumerate(zip(columns, widths, strict=True)):
        is_sorted = index == sorted_by
        mark = ("▼" if is_descending else "▲") if is_sorted and len(column.name) < width else ""
        _append(text, column, width, column.name + mark, "bold underline" if is_sorted else "bold")
    return text


def row(columns: Sequence[Column], widths: Sequence[int], line: TableLine) -> Text:
    text = Text()
    for column, width, cell in zip(columns, widths, line.cells, strict=True):
        _append(text, column, width, cell.text, cell.style)
    return text


def _append(text: Text, column: Column, width: int, what: str, style: str) -> None:
    if width == 0:
        return
    if text:
        text.append(" " * GAP)
    length = cell_len(what)
    if length > width:
        what, length = set_cell_size(what, width - 1) + "…", width
    pad = " " * (width - length)
    text.append(pad + what if column.is_number else what + pad, style)


def sorted_lines(lines: Sequence[TableLine], index: int, *, is_descending: bool) -> list[TableLine]:
    """Sort by a column; lines that have no value there come last, and equals stay in their order."""
    known = [line for line in lines if line.cells[index].by is not None]
    unknown = [line for line in lines if line.cells[index].by is None]
    known.sort(key=lambda line: _by(line, index), reverse=is_descending)
    return known + unknown


def _by(line: TableLine, index: int) -> tuple[float, str]:
    by = line.cells[index].by
    return (0.0, by.casefold()) if isinstance(by, str) else (by or 0.0, "")


def matching(lines: Sequence[TableLine], words: str) -> list[TableLine]:
    """Lines that have all the words somewhere."""
    wanted = words.casefold().split()
    return [line for line in lines if _has(line, wanted)] if wanted else list(lines)


def _has(line: TableLine, wanted: Sequence[str]) -> bool:
    text = " ".join((*line.key, *(cell.text for cell in line.cells))).casefold()
    return all(word in text for word in wanted)
