"""What a run does, while it does it, on standard error."""

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bench.load.generator.crew import Crew
from bench.load.results.goodput import Promises

COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(bar_width=12),
    TimeElapsedColumn(),
    TextColumn("{task.fields[now]}"),
)


class Live:
    """A line that is drawn again and again: requests a second, in flight, failed, attainment so far."""

    def __init__(self, promises: Promises, total: int | None, span_s: float | None, *, is_shown: bool = True) -> None:
        """``total`` requests, or for ``span_s``."""
        self._promises = promises
        self._total, self._span_s = total, span_s
        console = Console(stderr=True)  # to a file, it would write an empty line each time
        is_shown = is_shown and console.is_terminal
        self._progress = Progress(*COLUMNS, console=console, transient=True, disable=not is_shown)
        self._task: TaskID | None = None
        self._num_seen, self._num_good, self._num_failed = 0, 0, 0

    def __enter__(self) -> Callable[[Crew], None]:
        self._progress.start()
        self._task = self._progress.add_task("requests", total=self._total or self._span_s, now="")
        return self._hear

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _hear(self, crew: Crew) -> None:
        for outcome in crew.outcomes[self._num_seen :]:
            self._num_good += self._promises.is_kept(outcome)
            self._num_failed += not outcome.is_finished
        self._num_seen = len(crew.outcomes)
        assert self._task is not None
        done = self._num_seen if self._total else crew.elapsed_s
        self._progress.update(self._task, completed=done, now=self.words(crew))

    def words(self, crew: Crew) -> str:
        rate = self._num_seen / crew.elapsed_s if crew.elapsed_s > 0 else 0.0
        parts = [f"{self._num_seen} done", f"{crew.num_in_flight} in flight", f"{rate:.2f}/s"]
        if self._num_failed:
            parts.append(f"{self._num_failed} failed")
        if self._num_seen and not self._promises.is_empty:
            parts.append(f"{self._num_good / self._num_seen:.1%} in SLO")
        return ", ".join(parts)
