"""All children of one supervisor: they come, go, are waited for, and are stopped in waves."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

import structlog

from mesh.errors import UserError
from mesh.process.logs import log_file
from mesh.supervisor.processes.child import Child
from mesh.supervisor.processes.command import STOP_ORDER, ChildCommand
from mesh.supervisor.processes.pidfile import PidRecord
from mesh.supervisor.processes.surroundings import Surroundings
from mesh.wire.status import ChildStatus

log = structlog.get_logger()


class Children:
    """A supervisor's children by name. Call `note_change` after each change of one, and `begin` before adding any."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._children: dict[str, Child] = {}
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Children {list(self._children.values())}>"

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    def get(self, process: str) -> Child | None:
        return self._children.get(process)

    def statuses(self) -> list[ChildStatus]:
        return [child.status for child in self]

    def note_change(self) -> None:
        self._changed.set()

    def add(self, command: ChildCommand, found: PidRecord | None = None) -> Child:
        """Look after a process from now on. Its name must be free."""
        assert self._tasks is not None, "begun"
        assert command.process not in self._children, f"{command.process} twice"
        child = self._children[command.process] = Child(command, self._around, found)
        self._runs[command.process] = self._tasks.create_task(child.run())
        return child

    async def end(self, child: Child, limit_s: float) -> None:
        """Return once it has ended, which it was told to; it is killed after ``limit_s``. It is a child no more."""
        run = self._runs[child.command.process]
        await asyncio.wait([run], timeout=limit_s)
        if not run.done():
            log.warning("killed: did not end in time", child=child.command.process)
            child.kill()
            await asyncio.wait([run])
        del self._children[child.command.process], self._runs[child.command.process]
        self._around.changed()

    async def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait for a condition, which is checked after each change. Return whether it came true."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        return condition()

    async def settle(self, child: Child) -> None:
        """Return when it is ready, or on standby. Raise `UserError` if it cannot start at all."""
        await child.settled.wait()
        if child.gave_up is not None:
            process, file = child.command.process, str(log_file(self._around.runtime, child.command.process))
            reason = child.gave_up.removeprefix(f"{process}: ")
            raise UserError(f"{process}: {reason}" + ("" if file in reason else f" (log: {file})"))

    async def stop(self, drain_s: float) -> None:
        """Stop all children in waves. Each wave ends before the next one begins."""
        for kind in STOP_ORDER:
            await self._drain([child for child in self if child.command.kind == kind], drain_s)

    async def _drain(self, wave: list[Child], drain_s: float) -> None:
        for child in wave:
            child.terminate()
        runs = {self._runs[child.command.process]: child for child in wave}
        if not runs:
            return
        _, late = await asyncio.wait(runs, timeout=drain_s)
        for run in late:
            log.warning("killed: did not drain in time", child=runs[run].command.process)
            runs[run].kill()
        if late:
            await asyncio.wait(late)

    def kill(self) -> None:
        for child in self:
            child.kill()

    async def leave_alone(self) -> None:
        """They run on, and nobody looks after them."""
        for run in self._runs.values():
            run.cancel()
        await asyncio.wait(self._runs.values())
        for child in self:
            child.leave_alone()
