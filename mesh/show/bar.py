"""A bar on a terminal that shows how far work has come, and is gone when the work is done."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Task as RichTask
from rich.text import Text

from mesh.show.words import duration, plain


@contextmanager
def open_bar(what: str, total: float | None, file: TextIO) -> "Iterator[_Bar | None]":
    """Show a bar until the context ends. None: the terminal cannot move its cursor."""
    console = Console(file=file, highlight=False)
    if not console.is_interactive:
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(20), TaskProgressColumn(show_speed=False))
    with Progress(*columns, TimeElapsedColumn(), _TimeLeft(), _Words(), console=console, transient=True) as bar:
        yield _Bar(bar, bar.add_task(what, total=total, now=""))


class _TimeLeft(ProgressColumn):
    def render(self, task: RichTask) -> Text:
        left_s = task.time_remaining
        return Text("" if left_s is None or task.total is None else f"{duration(left_s)} left", "cyan")


class _Words(ProgressColumn):
    def render(self, task: RichTask) -> Text:
        return Text(task.fields["now"], no_wrap=True, overflow="ellipsis")


class _Bar:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def advance(self, steps: float = 1.0) -> None:
        self._bar.advance(self._task, steps)

    def at(self, done: float | None = None, words: str | None = None, *, total: float | None = None) -> None:
        self._bar.update(self._task, completed=done, total=total)
        if words is not None:
            self._bar.update(self._task, now=plain(words))

    def stage(self, what: str) -> None:
        self._bar.reset(self._task, description=plain(what))
        self._bar.tasks[0].total = None
