"""Shows how far work that takes a while has come, and how long it still takes, on standard error.

On a terminal a bar, which is gone when the work is done; elsewhere a line every ten seconds. Where standard output is
for programs there are no lines, as some read both.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Protocol, TextIO

from mesh.show.words import duration, plain

EVERY_S: Final = 10.0
TICK_S: Final = 0.5


class ShownProgress(Protocol):
    """Told of progress by whoever works."""

    def advance(self, steps: float = 1.0) -> None:
        """So many steps more are done."""

    def at(self, done: float | None = None, words: str | None = None, *, total: float | None = None) -> None:
        """Tell how much is done in all. ``words`` say more about now; ``total`` is known only now."""

    def stage(self, what: str) -> None:
        """Something else is worked on. How much is done is not known."""


@contextmanager
def working(
    what: str,
    total: float | None = None,
    *,
    is_shown: bool = True,
    has_lines: bool = True,
    every_s: float = EVERY_S,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ShownProgress]:
    """Show ``what`` is done until the context ends. ``total`` steps, None if nobody knows.

    ``is_shown``: at all. ``has_lines``: also where no terminal is, ``every_s`` at most.
    """
    file = sys.stderr if stream is None else stream
    with ExitStack() as stack:
        if is_shown and file.isatty():
            from mesh.show.bar import open_bar  # brings rich, which nobody else waits for

            if shown := stack.enter_context(open_bar(plain(what), total, file)):
                yield shown
                return
        yield _Lines(plain(what), total, file if is_shown and has_lines else None, clock, every_s)


@contextmanager
def waiting(what: str, seconds: float, *, has_lines: bool = True) -> Iterator[None]:
    """Show work that takes so many seconds, or little more, and tells nothing of itself meanwhile."""
    over = threading.Event()
    started = time.monotonic()
    with working(what, seconds, has_lines=has_lines) as shown:

        def tell() -> None:
            while not over.wait(TICK_S):
                shown.at(min(seconds, time.monotonic() - started))

        teller = threading.Thread(target=tell, name="progress", daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()


class _Lines:
    """One line every ``every_s``, the first one when so much time is over."""

    def __init__(
        self, what: str, total: float | None, file: TextIO | None, clock: Callable[[], float], every_s: float
    ) -> None:
        self._what, self._total, self._file, self._clock, self._every_s = what, total, file, clock, every_s
        self._done, self._words = 0.0, ""
        self._started = self._written = clock()

    def advance(self, steps: float = 1.0) -> None:
        self.at(self._done + steps)

    def at(self, done: float | None = None, words: str | None = None, *, total: float | None = None) -> None:
        self._done = self._done if done is None else done
        self._words = self._words if words is None else plain(words)
        self._total = self._total if total is None else total
        if self._clock() - self._written >= self._every_s:
            self._write(self._line())

    def stage(self, what: str) -> None:
        self._what, self._total, self._done, self._words = plain(what), None, 0.0, ""
        self._started = self._clock()
        self._write(self._line())

    def _line(self) -> str:
        passed_s = self._clock() - self._started
        parts = [] if not self._total else [f"{min(1.0, self._done / self._total):.0%}"]
        if self._total and 0 < self._done < self._total:
            parts.append(f"{duration(passed_s * (self._total - self._done) / self._done)} left")
        return f"{self._what}: {', '.join([*parts, *filter(None, [self._words])])}".removesuffix(": ")

    def _write(self, line: str) -> None:
        self._written = self._clock()
        if self._file is not None:
            self._file.write(f"{line}\n")
            self._file.flush()
