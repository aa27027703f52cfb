"""Work on large requests, beside the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from router.api.turns import Line, LineLimits

LIMITS: Final = LineLimits("large requests", max_of_one=128, max_waiting=256, wait_s=30.0)

T = TypeVar("T")


class Background:
    """One thread: more of them would take the interpreter from the event loop more often, and memory each."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "background")
        self._line = Line(LIMITS)

    async def run(self, client: str, work: Callable[[], T]) -> T:
        """What ``work`` returns or raises. Raise `Overloaded` if too much waits already."""
        async with self._line.turn(client):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
