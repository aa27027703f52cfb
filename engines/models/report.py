"""Progress on a terminal, as a line that changes, or in a log, as a line for each step."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_LINE_EVERY_S = 5.0  # of one step, in a log


class ProgressReport:
    """Shows the steps of preparing one model. It is an `engines.models.progress.Progress`."""

    def __init__(self, reference: str, console: Console) -> None:
        self._console = console
        self._reference = reference
        self._stage, self._written_at = "", 0.0
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
        self._live = Progress(*columns, console=console, transient=True) if console.is_terminal else None
        self._task = self._live.add_task(reference, total=None) if self._live else None

    def __call__(self, step: str, done: float | None = None) -> None:
        if self._live is not None and self._task is not None:
            self._live.update(self._task, description=step, completed=done or 0.0, total=None if done is None else 1.0)
        else:
            self._write(step, done)

    def _write(self, step: str, done: float | None) -> None:
        stage, now = step.partition(" (")[0], time.monotonic()
        if stage == self._stage and now - self._written_at < _LINE_EVERY_S:
            return
        self._stage, self._written_at = stage, now
        line = step if done is None else f"{step} ({done:.0%})"
        self._console.print(f"{self._reference}: {line}", highlight=False, soft_wrap=True, markup=False)

    def __enter__(self) -> "ProgressReport":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
