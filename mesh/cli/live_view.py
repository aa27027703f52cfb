"""Shows ``mesh up`` on a terminal: a live table while the processes start, lines afterwards."""

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from mesh.cli.view import LineView
from mesh.wire.status import ChildStatus

MARKS = {"running": Text("✓", "green"), "standby": Text("·", "dim"), "stopped": Text("✗", "red")}
STYLES = {"starting": "yellow", "running": "green", "restarting": "red", "standby": "dim", "stopped": "dim"}


class LiveView:
    """A table that moves while the processes start; lines afterwards."""

    def __init__(self, lines: LineView) -> None:
        self._lines = lines
        self._children: Sequence[ChildStatus] = ()
        self._started_at = time.monotonic()
        self._took: dict[str, float] = {}
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(console=Console(), get_renderable=self._render, refresh_per_second=8, transient=False)

    def __enter__(self) -> "LiveView":
        self._live.start(refresh=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        self._lines.__exit__(kind, error, trace)

    def changed(self, children: Sequence[ChildStatus]) -> None:
        self._children = children
        for child in children:
            if child.state == "running":
                self._took.setdefault(child.process, time.monotonic() - self._started_at)
        if not self._live.is_started:
            self._lines.changed(children)

    def ready(self, problem: str | None) -> None:
        self._leave_live()
        self._lines.ready(problem)

    def left(self) -> None:
        self._lines.left()

    def stopping(self) -> None:
        self._leave_live()
        self._lines.stopping()

    def _leave_live(self) -> None:
        """From here on, only what changes is told."""
        if self._live.is_started:
            self._live.stop()
            self._lines.note(self._children)

    def _render(self) -> Group:
        table = Table.grid(padding=(0, 2))
        for child in self._children:
            seconds = self._took.get(child.process, time.monotonic() - self._started_at)
            mark = MARKS.get(child.state, self._spinner)
            state = Text("ready" if child.state == "running" else child.state, STYLES.get(child.state, ""))
            why = Text(child.last_exit or "", "red", overflow="ellipsis", no_wrap=True)
            table.add_row(mark, child.process, state, Text(f"{seconds:.1f} s", "dim"), why)
        return Group(table)
