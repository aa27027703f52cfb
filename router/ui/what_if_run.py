"""Runs simulations that the page asks for, one at a time, in processes of their own."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

from router.api.errors import ApiError
from router.ui.what_if import MAX_NOTES, Failure, Result, WhatIfProgress, progress_of, read_answer

LIMIT_S: Final = 300.0
PATIENCE_S: Final = 2.0  # with one whose reader may just have left
MAX_LINE: Final = 1 << 16
CHILD: Final = (sys.executable, "-m", "router.ui.what_if_child")

Tell = Callable[[WhatIfProgress], Awaitable[None]]


class Simulations:
    """Processes that simulate, one at a time. ``program`` begins the command; ``limit_s``: how long one may take."""

    def __init__(self, program: Sequence[str] = CHILD, limit_s: float = LIMIT_S) -> None:
        self._program = program
        self._limit_s = limit_s
        self._child: asyncio.subprocess.Process | None = None
        self._has_ended = False
        self._is_free = asyncio.Event()
        self._is_free.set()

    @property
    def is_busy(self) -> bool:
        return not self._is_free.is_set()

    async def settle(self) -> None:
        """Wait for a moment while another one has its turn: whoever stops one and begins the next need not wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._is_free.wait()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Raise `ApiError` (409) while another one has its turn, (503) when the gateway stops."""
        if self._has_ended:
            raise ApiError(503, "This gateway stops; ask another one", code="draining")
        if self.is_busy:
            message = "This gateway simulates for somebody else; wait until that has ended, or stop it"
            raise ApiError(409, message, code="simulation_running", headers={"retry-after": "10"})
        self._is_free.clear()
        try:
            yield
        finally:
            self._is_free.set()

    def end(self) -> None:
        """End the run that is under way: the gateway stops, and no other one begins."""
        self._has_ended = True
        if self._child is not None:
            _kill(self._child)

    async def run(self, arguments: Sequence[str], folder: Path, tell: Tell) -> Result | Failure:
        """Run a command whose files are in ``folder``; killed if this is cancelled, or after the limit."""
        result = folder / "result.json"
        try:
            async with asyncio.timeout(self._limit_s), self._running(arguments, result) as child:
                said = await _listen(child, tell)
                code = await child.wait()
        except TimeoutError:
            words = f"It was stopped after {self._limit_s:.0f} s; choose a shorter recording, or fewer alternatives"
            return Failure(words)
        if self._has_ended:
            return Failure("This gateway stops")
        return read_answer(code, result.read_bytes(), said, folder)

    @asynccontextmanager
    async def _running(self, arguments: Sequence[str], result: Path) -> AsyncIterator[asyncio.subprocess.Process]:
        with result.open("wb") as output:
            child = await asyncio.create_subprocess_exec(
                *self._program,
                str(os.getpid()),
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.PIPE,
                limit=MAX_LINE,
                start_new_session=True,
            )
        self._child = child
        try:
            yield child
        finally:
            self._child = None
            _kill(child)
            await child.wait()


def _kill(child: asyncio.subprocess.Process) -> None:
    """With all that it started."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


async def _listen(child: asyncio.subprocess.Process, tell: Tell) -> list[str]:
    """Tell progress. Return the first other lines."""
    assert child.stderr is not None
    said: list[str] = []
    while True:
        try:
            line = (await child.stderr.readline()).decode(errors="replace")
        except ValueError:  # longer than `MAX_LINE`
            continue
        if not line:
            return said
        if progress := progress_of(line.strip()):
            await tell(progress)
        elif line.strip() and len(said) < MAX_NOTES:
            said.append(line.strip())
