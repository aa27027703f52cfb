"""Shows how far a batch is and how long it will take, on one line."""

from collections import deque
from typing import Any, Final, TextIO

SEEN_S: Final = 120.0  # of progress, that the rest is judged by
WIDTH: Final = 24  # characters of the bar


class BatchProgress:
    """Draws over its line on a terminal; elsewhere it writes one when there is something new."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._seen: deque[tuple[float, int]] = deque()
        self._last = ""

    def show(self, batch: dict[str, Any], now: float) -> None:
        """``now``: seconds of a clock that only goes on."""
        counts = batch["request_counts"]
        done, total = counts["completed"] + counts["failed"], counts["total"]
        line = f"{batch['status']:<12} {bar(done, total)} {done}/{total}{self._left(done, total, now)}"
        if line == self._last:
            return
        self._last = line
        self._out.write(f"\r{line}\x1b[K" if self._is_terminal else f"{line}\n")
        self._out.flush()

    def _left(self, done: int, total: int, now: float) -> str:
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[0][0] < now - SEEN_S:
            self._seen.popleft()
        (since, before) = self._seen[0]
        if done <= before or now <= since or done >= total:
            return ""
        pace = (done - before) / (now - since)
        return f", {pace:.1f}/s, about {duration((total - done) / pace)} left"

    def end(self) -> None:
        if self._is_terminal:
            self._out.write("\n")


def bar(done: int, total: int) -> str:
    filled = WIDTH * done // total if total else 0
    return f"[{'#' * filled}{'.' * (WIDTH - filled)}]"


def duration(seconds: float) -> str:
    """Write it as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
