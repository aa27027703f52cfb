"""Says that a process lives while its event loop is held up, from a thread of its own.

Whoever hears nothing for a lease drops what it has of the process, all at once. A loop that is held up for a moment,
by a long computation or a machine that swaps, is no reason for that. For longer than `MOST_HELD_UP_S` nobody is held
up and lives: then there is silence. A pulse says nothing but that; a supervisor's watchdog counts statuses only.
"""

import time
from collections.abc import Callable
from threading import Event, Thread

import structlog

MOST_HELD_UP_S = 10.0

log = structlog.get_logger()


class Pulse:
    """Calls ``say`` from a thread while an event loop is held up. ``say`` is called from the thread, each ``period_s``
    in which `sign` was not.
    """

    def __init__(self, say: Callable[[], None], period_s: float) -> None:
        self._say = say
        self._period_s = period_s
        self._signed_at = time.monotonic()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    def sign(self) -> None:
        """The event loop turns: it spoke itself."""
        self._signed_at = time.monotonic()

    def stop(self) -> None:
        """Stop. Nothing is said any more when this returns."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._period_s):
            if is_held_up(time.monotonic() - self._signed_at, self._period_s):
                try:
                    self._say()
                except Exception:
                    log.exception("no pulse")


def is_held_up(silent_s: float, period_s: float) -> bool:
    """Return whether an event loop that spoke ``silent_s`` ago is late, and not so late that it is taken for dead."""
    return 1.5 * period_s < silent_s <= MOST_HELD_UP_S
