"""Publishes a process's status: at once when it changed or somebody starts to listen, and at least once a heartbeat.

While the event loop is held up, a pulse says from a thread that the process lives.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from mesh.membership.pulse import Pulse
from mesh.sockets.sockets import Sockets
from mesh.wire.messages import BroadcastMessage

M = TypeVar("M")


class Heartbeat(Generic[M]):
    """``status`` makes the status to publish; it is called anew each time."""

    def __init__(self, sockets: Sockets[M], status: Callable[[], BroadcastMessage], period_s: float) -> None:
        self._sockets = sockets
        self._status = status
        self._period_s = period_s
        self._changed = asyncio.Event()

    def poke(self) -> None:
        """The status changed: publish it in this turn of the event loop, once for all changes until then."""
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
        async for _ in self._sockets.subscribers():
            self.poke()

    async def _beat(self, pulse: Pulse) -> None:
        while True:
            pulse.sign()
            self._changed.clear()
            self._sockets.publish(self._status())
            try:
                async with asyncio.timeout(self._period_s):
                    await self._changed.wait()
            except TimeoutError:
                continue
