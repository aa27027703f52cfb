"""The supervisor of one host: its children, its place in the mesh, its beginning and its end."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from mesh.clock import Clock
from mesh.membership.heartbeat import Heartbeat
from mesh.process.ties import write_places
from mesh.sockets.sockets import Sockets
from mesh.supervisor.plan import StartPlan
from mesh.supervisor.processes.children import Children
from mesh.supervisor.processes.command import ChildCommand
from mesh.supervisor.processes.copies import TopologyCopy
from mesh.supervisor.processes.forks import ProcessSource
from mesh.supervisor.processes.restarts import RestartPolicy
from mesh.supervisor.processes.surroundings import Surroundings
from mesh.supervisor.processes.watchdog import LOOK_S, Watchdog
from mesh.supervisor.rollout import Rollout
from mesh.supervisor.shared_devices import SharedDevices, standing_by
from mesh.topology.timing import Timing
from mesh.wire.control import Renew, SetRunning, Stop
from mesh.wire.hosts import HostPlace, HostsMoved
from mesh.wire.messages import SupervisorMessage
from mesh.wire.status import ChildStatus, NotRenewed, SupervisorStatus

STEP_DOWN = signal.SIGUSR1  # to the process of a supervisor, from the one that takes over on the same host

MOST_RENEWALS = 64  # that wait for their turn

log = structlog.get_logger()


class Supervisor:
    """Runs children until it is asked to stop, or to leave them to another supervisor.

    ``plan``: what becomes of those that run already. ``on_change`` sees every change of any of them. ``on_demand``
    hears of processes of other hosts that are to run: those hosts may be nowhere yet. ``places_file``: where children
    read where hosts are, if somebody places those.
    """

    def __init__(
        self,
        host: str,
        *,
        commands: Sequence[ChildCommand],
        plan: StartPlan,
        sockets: Sockets[SupervisorMessage],
        runtime: Path,
        topology: TopologyCopy,
        timing: Timing,
        clock: Clock,
        on_change: Callable[[Sequence[ChildStatus]], None],
        on_demand: Callable[[str], None] = lambda process: None,
        places_file: Path | None = None,
        make_restart_policy: Callable[[], RestartPolicy] = RestartPolicy,
        make_watchdog: Callable[[], Watchdog] = Watchdog,
    ) -> None:
        self._host = host
        self._sockets = sockets
        self._timing = timing
        self._on_change = on_change
        self._on_demand = on_demand
        self._places_file = places_file
        self._heartbeat = Heartbeat(sockets, self._make_status, timing.heartbeat_s, timing.status_gap_s)
        self._is_takeover = bool(plan.current)
        self._source = ProcessSource(timing.start_s)
        around = Surroundings(
            host,
            runtime,
            topology,
            timing.start_s,
            timing.drain_s,
            clock,
            self._changed,
            self._source,
            make_restart_policy,
            make_watchdog,
            self._is_takeover,
        )
        self._children = Children(around)
        commands = standing_by(commands, plan.current)
        self._shared = SharedDevices({one.process: one.spans for one in commands if one.spans}, plan.current)
        self._shared_changed = asyncio.Event()
        self._rollout = Rollout(self._children, commands, plan, timing)
        self._names = [name for command in commands for name in command.names]
        self._seq = 0
        self._renewals: asyncio.Queue[str] = asyncio.Queue(MOST_RENEWALS)
        self._renewing: list[str] = []
        self._not_renewed: dict[str, NotRenewed] = {}
        self._num_not_renewed = 0
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._step_down = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Supervisor {self._host} {self._children!r}>"

    @property
    def has_stepped_down(self) -> bool:
        """Return whether it left its children running, because another supervisor takes over."""
        return self._step_down.is_set() and not self._stop.is_set()

    def stop(self, *, now: bool = False) -> None:
        """Drain and stop all children; at once if asked a second time."""
        if now or self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    def step_down(self) -> None:
        """End, and leave all children running: another supervisor takes over."""
        log.info("asked to step down")
        self._step_down.set()

    def renew(self, process: str) -> None:
        """Replace a process by a new one, after those that were to be renewed before."""
        with suppress(asyncio.QueueFull):  # it is asked for again
            self._renewals.put_nowait(process)
            self._renewing.append(process)
            self._heartbeat.poke()

    def hosts_moved(self, places: Sequence[HostPlace]) -> None:
        """Find other hosts where they are now, and tell the processes of this one."""
        if self._places_file is not None:
            write_places(self._places_file, list(places))
        self._sockets.hosts_moved(places)
        for child in self._children:
            self._sockets.send(child.command.process, HostsMoved(list(places)))

    async def run(self, ready: Callable[[str | None], None]) -> None:
        """Return when all children are stopped, or left to somebody else.

        ``ready`` is called once: all children are ready, or of a mesh that ran already not all could be made so, and
        why. Raise `UserError` if one of a new mesh cannot start at all.
        """
        async with asyncio.TaskGroup() as tasks:
            jobs = (
                self._heartbeat.run(),
                self._obey(),
                self._listen(),
                self._watch(),
                self._share(),
                self._carry_out_renewals(tasks),
            )
            background = [tasks.create_task(job) for job in jobs]
            self._children.begin(tasks)
            self._rollout.begin()
            try:
                await self._until_ready(tasks, ready)
                await self._until_asked()
            finally:
                await self._leave()
                for task in background:
                    task.cancel()
                self._source.close()

    async def _until_ready(self, tasks: asyncio.TaskGroup, ready: Callable[[str | None], None]) -> None:
        """All children ready, or one of them hopeless, or asked to stop."""
        asked = asyncio.ensure_future(self._until_asked())
        starting = asyncio.ensure_future(self._rollout.run(tasks) if self._is_takeover else self._settle())
        try:
            await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                ready(starting.result())
        finally:
            for task in (starting, asked):
                task.cancel()
            await asyncio.wait({starting, asked})

    async def _settle(self) -> None:
        await asyncio.gather(*map(self._children.settle, self._children))

    async def _until_asked(self) -> None:
        """To stop, or to step down."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._stop, self._step_down)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _leave(self) -> None:
        if self.has_stepped_down:
            self._rollout.give_up()
            await self._children.leave_alone()
            return
        self._stop.set()
        self._rollout.adopt_rest()
        killer = asyncio.ensure_future(self._kill_when_asked())
        try:
            await self._children.stop(self._timing.drain_s)
        finally:
            killer.cancel()

    async def _kill_when_asked(self) -> None:
        await self._stop_now.wait()
        self._children.kill()

    async def _obey(self) -> None:
        async for received in self._sockets.messages():
            match received.message:
                case Stop(now):
                    log.info("asked to stop", sender=received.sender.process, now=now)
                    self.stop(now=now)
                case SetRunning(process, running):
                    log.info("asked", child=process, running=running, sender=received.sender.process)
                    if self._shared.ask(process, running):
                        self._shared_changed.set()
                    elif child := self._children.get(process):
                        child.want(running)
                    elif running:
                        self._on_demand(process)
                case Renew(process):
                    log.info("asked to renew", child=process, sender=received.sender.process)
                    self.renew(process)

    async def _carry_out_renewals(self, tasks: asyncio.TaskGroup) -> None:
        """One process after the other, once all run."""
        while True:
            process = await self._renewals.get()
            self._not_renewed.pop(process, None)
            if problem := await self._rollout.renew(process, tasks):
                log.error("not renewed", child=process, reason=problem)
                self._num_not_renewed += 1
                self._not_renewed[process] = NotRenewed(process, problem, self._num_not_renewed)
            self._renewing.remove(process)
            self._heartbeat.poke()

    async def _share(self) -> None:
        """Start and end the engines that share devices, one way of using these after the other."""
        while True:
            await self._shared_changed.wait()
            self._shared_changed.clear()
            for process, running in self._shared.wants(self._states()).items():
                if child := self._children.get(process):
                    child.want(running)

    def _states(self) -> dict[str, str]:
        return {one.process: one.state for one in self._children.statuses()}

    async def _listen(self) -> None:
        self._sockets.subscribe(self._names)
        async for sender, status in self._sockets.broadcasts():
            child = self._children.get(sender.process)
            if child is not None and not isinstance(status, SupervisorStatus):
                child.hear(sender, status)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for child in self._children:
                try:
                    child.look()
                except Exception:
                    log.exception("could not look after a process", child=child.command.process)

    def _changed(self) -> None:
        self._children.note_change()
        self._shared.see(self._states())
        self._shared_changed.set()
        self._heartbeat.poke()
        try:
            self._on_change(self._children.statuses())
        except Exception:  # a terminal that went away, for one
            log.exception("could not show what changed")

    def _make_status(self) -> SupervisorStatus:
        self._seq += 1
        children, is_stopping = self._children.statuses(), self._stop.is_set()
        return SupervisorStatus(
            self._seq,
            self._host,
            os.getpid(),
            children,
            is_stopping,
            self._sockets.away(),
            list(self._renewing),
            list(self._not_renewed.values()),
        )
