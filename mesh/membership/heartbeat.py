"""Publishes a process's status: at once when it changed or somebody starts to listen, and at least once a heartbeat.

In a large mesh, whoever starts to listen waits for the next heartbeat if a status went out just before.

While the event loop is held up, a pulse says from a thread that the process lives.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Generic, TypeVar

from mesh.membership.pulse import Pulse
from mesh.sockets.sockets import Sockets
from mesh.wire.messages import BroadcastMessage

M = TypeVar("M")


class Heartbeat(Generic[M]):
    """Publishes a process's status. ``status`` makes the status to publish; it is called anew each time. ``gap_s``: see
    `Timing.status_gap_s`.
    """

    def __init__(
        self, sockets: Sockets[M], status: Callable[[], BroadcastMessage], period_s: float, gap_s: float = 0.0
    ) -> None:
        self._sockets = sockets
        self._status = status
        self._period_s = period_s
        self._gap_s = gap_s
        self._published_at = -inf
        self._changed = asyncio.Event()

    def poke(self) -> None:
        """Publish the status, which has changed, in this turn of the event loop, once for all changes until then."""
        self._changed.set()

    async def run(self) -> None:
        """Beat and never return; cancel it."""
        pulse = Pulse(self._sockets.pulse, self._period_s)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._welcome())
                tasks.create_task(self._beat(pulse))
        finally:
            pulse.stop()

    async def _welcome(self) -> None:
        loop = asyncio.get_running_loop()
        async for _ in self._sockets.subscribers():
            if loop.time() >= self._published_at + self._gap_s:
                self.poke()

    async def _beat(self, pulse: Pulse) -> None:
        while True:
            pulse.sign()
            self._changed.clear()
            self._published_at = asyncio.get_running_loop().time()
            self._sockets.publish(self._status())
            try:
                async with asyncio.timeout(self._period_s):
                    await self._changed.wait()
            except TimeoutError:
                continue
