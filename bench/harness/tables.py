"""Tables of one look, and the console that prints them."""

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table


def make_table(title: str, words: Iterable[str], numbers: Iterable[str] = ()) -> Table:
    """A table with headings of columns of words, then of columns of numbers."""
    table = Table(title=title, title_justify="left")
    for heading in words:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def print_table(
    title: str, words: Iterable[str], numbers: Iterable[str], rows: Iterable[Iterable[str]], width: int = 120
) -> None:
    """The whole table at once."""
    table = make_table(title, words, numbers)
    for row in rows:
        table.add_row(*row)
    make_console(width).print(table)


def make_console(width: int = 120) -> Console:
    """``width`` is for output into a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else width)
