"""Replaces what runs and is not as the topology says any more, one process at a time, while the mesh serves.

Theory of operation. What does not run is started first, and what the topology has no more ends last. In between each
outdated engine drains, which moves its requests to other engines, and starts again, and is ready, before the next one
does. Then each outdated gateway gets a successor under the other of its two names: the successor is handed the
listening sockets, and its predecessor finishes what it has and ends. The placement daemon pauses: it would take engines
that are being replaced for dead ones. What does not start stops the rollout; all that is not replaced yet serves on.
"""

import asyncio
from collections.abc import Sequence

import structlog

from mesh.addresses import other_seat, owner_of
from mesh.supervisor.plan import StartPlan
from mesh.supervisor.processes.child import KILL_S
from mesh.supervisor.processes.children import Children
from mesh.supervisor.processes.command import ENGINE, GATEWAY, PLACEMENT, ChildCommand
from mesh.supervisor.processes.pidfile import PidRecord
from mesh.topology.timing import Timing

SERVING = ("running", "standby")  # states of a process that will not change by itself
GIVEN_UP = "stopped"
STARTS = 3  # that a process may need to become ready, or to be given up

log = structlog.get_logger()


class Rollout:
    """Replaces processes one by one. `begin` it at once, then `run` it. ``commands``: of all processes that are to be
    here.
    """

    def __init__(self, children: Children, commands: Sequence[ChildCommand], plan: StartPlan, timing: Timing) -> None:
        self._children = children
        self._commands = {command.process: command for command in commands}
        self._plan = plan
        self._timing = timing
        self._outdated = {name: plan.current[name].pid for name in plan.outdated}
        self._endings: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Rollout of {self._plan!r}>"

    def begin(self) -> None:
        """Adopt what runs and start what does not."""
        for name, command in self._commands.items():
            found = self._plan.current.get(name)
            self._children.add(command if found is None else command.under(found.process), found)
        for record in self._plan.leaving:
            self._children.add(self._commands[owner_of(record.process)].under(record.process), record).hold()

    async def run(self, tasks: asyncio.TaskGroup) -> str | None:
        """Return why it was not carried through; None: everything is as it should be. What ends late ends in
        ``tasks``.
        """
        is_replacing_engines = any(self._commands[name].kind == ENGINE for name in self._outdated)
        daemons = [child for child in self._children if child.command.kind == PLACEMENT]
        paused = [child for child in daemons if is_replacing_engines or child.command.process in self._outdated]
        for daemon in paused:
            daemon.want(False)
        try:
            return await self._replace(tasks)
        finally:
            for daemon in paused:
                daemon.want(True)

    async def renew(self, process: str, tasks: asyncio.TaskGroup) -> str | None:
        """Replace one process that runs by a new one. Return why that was not done; None: it was, or needed not be."""
        command = self._commands.get(process)
        if command is None:
            return f"no process {process!r} is here"
        if command.kind == GATEWAY:
            return await self._succeed_gateway(command, tasks)
        child = self._children.get(process)
        if child is None or child.status.pid is None:
            return None  # it reads the deployment when it starts
        if command.kind == ENGINE:
            return await self._replace_engine(command, child.status.pid)
        child.renew()
        return None

    def adopt_rest(self) -> None:
        """The mesh stops: what would have ended last ends with the others."""
        for record in self._plan.removed:
            if self._children.get(record.process) is None:
                self._children.add(_without_place(record), record)

    def give_up(self) -> None:
        """Watch no longer over what others have succeeded."""
        for ending in self._endings:
            ending.cancel()

    async def _replace(self, tasks: asyncio.TaskGroup) -> str | None:
        for name in self._plan.missing:
            if problem := await self._becomes_ready(self._commands[name], "started"):
                return problem
        await self._children.until(self._all_serve, self._start_s)
        for record in self._plan.leaving:
            if self._runs(other_seat(record.process)):
                self._succeeded(record.process, tasks)
        for name, pid in self._outdated.items():
            kind = self._commands[name].kind
            problem = None
            if kind == ENGINE:
                problem = await self._replace_engine(self._commands[name], pid)
            elif kind == GATEWAY:
                problem = await self._succeed_gateway(self._commands[name], tasks)
            if problem:
                return f"{problem}; what was not replaced yet runs as before"
        for record in self._plan.removed:
            child = self._children.add(_without_place(record), record)
            child.terminate()
            await self._children.end(child, self._timing.drain_s + KILL_S)
        return None

    async def _becomes_ready(self, command: ChildCommand, what: str) -> str | None:
        """Wait for that; why it did not."""
        child = self._children.get(command.process)
        assert child is not None, f"{command.process} is looked after"
        await self._children.until(lambda: child.status.state in (*SERVING, GIVEN_UP), self._start_s)
        if child.status.state == "running" or (command.is_standby and child.status.last_exit is None):
            return None
        return f"{command.process}: not {what}: {child.status.last_exit or child.status.state}"

    async def _replace_engine(self, command: ChildCommand, pid: int) -> str | None:
        """None if it was, or needed not be: whatever died meanwhile started as it is to be."""
        child = self._children.get(command.process)
        assert child is not None, f"{command.process} is looked after"
        if not await self._children.until(self._all_engines_serve, self._start_s):
            return f"{command.process}: not replaced, as other engines do not run"
        if child.status.pid != pid:
            return None
        log.info("replacing", child=command.process)
        child.renew()
        if not await self._children.until(lambda: child.status.pid != pid, self._timing.drain_s + KILL_S):
            log.warning("killed: did not drain in time", child=command.process)
            child.end_life()
            await self._children.until(lambda: child.status.pid != pid, KILL_S)
        problem = await self._becomes_ready(command, "replaced")
        await asyncio.sleep(self._timing.lease_s)  # until everybody has heard of it
        return problem

    def _runs(self, process: str) -> bool:
        child = self._children.get(process)
        return child is not None and child.status.state == "running"

    def _all_engines_serve(self) -> bool:
        return all(child.status.state in SERVING for child in self._children if child.command.kind == ENGINE)

    def _all_serve(self) -> bool:
        """But for those that others have succeeded, and the daemon that pauses."""
        names = {record.process for record in self._plan.leaving}
        others = [child for child in self._children if child.command.kind != PLACEMENT]
        return all(child.status.state in SERVING for child in others if child.command.process not in names)

    async def _succeed_gateway(self, command: ChildCommand, tasks: asyncio.TaskGroup) -> str | None:
        ours = [child for child in self._children if owner_of(child.command.process) == command.process]
        old = next((child for child in ours if not child.is_ending), None)
        if old is None:
            return f"{command.process}: not replaced, as it is ending"
        seat = other_seat(old.command.process)
        if not await self._children.until(lambda: self._children.get(seat) is None, 2 * self._timing.drain_s + KILL_S):
            return f"{command.process}: not replaced, as the one before it has not ended"
        log.info("succeeding", child=old.command.process, successor=seat)
        old.hold()
        new = self._children.add(command.under(seat))
        if problem := await self._becomes_ready(new.command, "replaced"):
            new.kill()
            await self._children.end(new, KILL_S)
            old.release()
            return problem
        self._succeeded(old.command.process, tasks)
        await asyncio.sleep(self._timing.lease_s)  # until everybody has heard of it
        return None

    def _succeeded(self, process: str, tasks: asyncio.TaskGroup) -> None:
        """Its successor told it to end; it finishes what it has."""
        child = self._children.get(process)
        assert child is not None, f"{process} is looked after"
        child.succeeded()
        ending = tasks.create_task(self._children.end(child, 2 * self._timing.drain_s + KILL_S))
        self._endings.add(ending)

    @property
    def _start_s(self) -> float:
        return STARTS * (self._timing.start_s + KILL_S)


def _without_place(record: PidRecord) -> ChildCommand:
    """Of a process that is not in the topology any more, and never started again."""
    return ChildCommand(record.process, record.kind, (), is_standby=True)
