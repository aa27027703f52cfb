"""Watches how late this process itself is: what it sees of a server is late by as much."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

EVERY_S: Final = 0.05
MUCH_S: Final = 0.01


@dataclass(slots=True)
class Lag:
    """How much later than asked for this process went on, each time."""

    seconds: list[float] = field(default_factory=list)

    def remarks(self) -> list[str]:
        """One line if it was late often enough to matter."""
        if not self.seconds:
            return []
        p90_s = sorted(self.seconds)[9 * (len(self.seconds) - 1) // 10]
        if p90_s < MUCH_S:
            return []
        return [
            f"this machine was busy: one time in ten the client was late by {1e3 * p90_s:.0f} ms or more, "
            "and so are its figures; give it a core of its own"
        ]


@asynccontextmanager
async def watched_lag() -> AsyncIterator[Lag]:
    """Watch until the context ends."""
    lag = Lag()

    async def watch() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(EVERY_S)
            lag.seconds.append(max(0.0, time.monotonic() - began - EVERY_S))

    watcher = asyncio.create_task(watch())
    try:
        yield lag
    finally:
        watcher.cancel()
        await asyncio.wait([watcher])
