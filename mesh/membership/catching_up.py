"""A process that was held up itself hears what others said meanwhile, before their silence counts.

Messages that came in the meantime have yet to be read, and who shares the machine may have been held up, too.
"""

import asyncio
from math import inf

from mesh.clock import Clock

MAX_CATCH_UPS = 5  # in a row: who is held up again and again finds the dead at last, too


async def catch_up(clock: Clock, due_at: float, lag_s: float) -> None:
    """Wait after a timer that came late. One that was due at ``due_at`` and is late by more than ``lag_s`` waits as
    long again, until a wait ends on time.
    """
    for _ in range(MAX_CATCH_UPS):
        now = clock.now()
        if now - due_at <= lag_s:
            return
        due_at = now + lag_s
        await asyncio.sleep(lag_s)


class CatchingUp:
    """The same without a clock of its own: whether a deadline that has passed counts already. Pure."""

    def __init__(self, lag_s: float) -> None:
        self.until: float | None = None  # when to look again; None: nothing is put off
        self._lag_s = lag_s
        self._num_times = 0

    def looks_at(self, due_at: float) -> float:
        """Return when to look at what is due at ``due_at``; infinite: nothing is due, and nothing is put off."""
        return due_at if self.until is None or due_at == inf else self.until

    def puts_off(self, due_at: float, now: float) -> bool:
        """Return whether what was due at ``due_at`` has to wait until ``until``, as the process was held up itself."""
        if due_at == inf:  # it was settled while it was put off: the dead were declared so by somebody else
            self.until, self._num_times = None, 0
            return True
        due_at = due_at if self.until is None else self.until
        if now < due_at:
            return True
        if now - due_at <= self._lag_s or self._num_times == MAX_CATCH_UPS:
            self.until, self._num_times = None, 0
            return False
        self._num_times += 1
        self.until = now + self._lag_s
        return True
