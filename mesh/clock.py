"""Time as a collaborator, so that a simulator can bring its own."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds of a monotonic clock; only differences have a meaning."""

    def now(self) -> float: ...


class SystemClock:
    """The machine's monotonic clock."""

    now = staticmethod(time.monotonic)
