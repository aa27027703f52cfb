"""Work on large requests, beside the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from mesh.process.freed_memory import give_back_freed_memory
from router.api.openai.input.turns import Line, LineLimits

LIMITS: Final = LineLimits("large requests", max_of_one=128, max_waiting=256, wait_s=30.0)
TIDY_S: Final = 2.0  # after work, when what it took is free

T = TypeVar("T")


class Background:
    """One thread: more of them would take the interpreter from the event loop more often, and memory each.

    A moment after work its memory goes back to the system.
    """

    def __init__(self, tidy: Callable[[], object] = give_back_freed_memory) -> None:
        self._thread = ThreadPoolExecutor(1, "background")
        self._line = Line(LIMITS)
        self._tidy = tidy
        self._will_tidy = False

    async def run(self, client: str, work: Callable[[], T]) -> T:
        """Return what ``work`` returns or raises. Raise `Overloaded` if too much waits already."""
        loop = asyncio.get_running_loop()
        async with self._line.turn(client):
            try:
                return await loop.run_in_executor(self._thread, work)
            finally:
                if not self._will_tidy:
                    self._will_tidy = True
                    loop.call_later(TIDY_S, self._tidy_up)

    def _tidy_up(self) -> None:
        self._will_tidy = False
        self._thread.submit(self._tidy)
