"""The supervisor of one host: its children, its place in the mesh, its life."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from mesh.clock import Clock
from mesh.errors import UserError
from mesh.heartbeat import Heartbeat
from mesh.logs import log_file
from mesh.messages import (
    ChildStatus,
    SetRunning,
    Stop,
    SupervisorMessage,
    SupervisorStatus,
)
from mesh.sockets import Sockets
from mesh.supervisor.child import Child, Surroundings
from mesh.supervisor.command import STOP_ORDER, ChildCommand
from mesh.supervisor.restarts import RestartPolicy
from mesh.supervisor.watchdog import LOOK_S, Watchdog
from mesh.topology.schema import Timing

log = structlog.get_logger()


class Supervisor:
    """Runs children until it is asked to stop. ``on_change`` sees every change of any of them."""

    def __init__(
        self,
        host: str,
        *,
        commands: Sequence[ChildCommand],
        sockets: Sockets[SupervisorMessage],
        runtime: Path,
        timing: Timing,
        clock: Clock,
        on_change: Callable[[Sequence[ChildStatus]], None],
        make_restart_policy: Callable[[], RestartPolicy] = RestartPolicy,
        make_watchdog: Callable[[], Watchdog] = Watchdog,
    ) -> None:
        self._host = host
        self._sockets = sockets
        self._runtime = runtime
        self._timing = timing
        self._on_change = on_change
        self._heartbeat = Heartbeat(sockets, self._make_status, timing.heartbeat_s)
        around = Surroundings(host, runtime, timing.start_s, clock, self._changed, make_restart_policy, make_watchdog)
        self._children = {command.process: Child(command, around) for command in commands}
        self._seq = 0
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Supervisor {self._host} {list(self._children.values())}>"

    def stop(self, *, now: bool = False) -> None:
        """Drain and stop all children; at once if asked a second time."""
        if now or self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Return when all children are stopped. ``ready`` is called once, when all of them are ready.

        Raise `UserError` if one of them cannot start at all.
        """
        async with asyncio.TaskGroup() as tasks:
            jobs = (self._heartbeat.run(), self._obey(), self._listen(), self._watch())
            background = [tasks.create_task(job) for job in jobs]
            lives = [tasks.create_task(child.run()) for child in self._children.values()]
            try:
                await self._until_ready()
                if not self._stop.is_set():
                    ready()
                await self._stop.wait()
            finally:
                await self._stop_children(lives)
                for task in background:
                    task.cancel()

    async def _until_ready(self) -> None:
        """All children ready, or one of them hopeless, or asked to stop."""
        stop = asyncio.ensure_future(self._stop.wait())
        pending = {asyncio.ensure_future(self._settle(child)) for child in self._children.values()}
        try:
            while pending and not stop.done():
                done, _ = await asyncio.wait({*pending, stop}, return_when=asyncio.FIRST_COMPLETED)
                pending -= done
                for task in done:
                    task.result()
        finally:
            for task in (*pending, stop):
                task.cancel()

    async def _settle(self, child: Child) -> None:
        await child.settled.wait()
        if child.gave_up is not None:
            process, file = child.command.process, str(log_file(self._runtime, child.command.process))
            reason = child.gave_up.removeprefix(f"{process}: ")
            raise UserError(f"{process}: {reason}" + ("" if file in reason else f" (log: {file})"))

    async def _stop_children(self, lives: Sequence["asyncio.Task[None]"]) -> None:
        """In waves, each of which ends before the next one begins."""
        self._stop.set()
        killer = asyncio.ensure_future(self._kill_when_asked())
        try:
            for kind in STOP_ORDER:
                wave = [
                    (child, life)
                    for child, life in zip(self._children.values(), lives, strict=True)
                    if child.command.kind == kind
                ]
                await self._drain(wave)
        finally:
            killer.cancel()

    async def _drain(self, wave: Sequence[tuple[Child, "asyncio.Task[None]"]]) -> None:
        for child, _ in wave:
            child.terminate()
        tasks = [life for _, life in wave]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=self._timing.drain_s)
        for child, life in wave:
            if life in late:
                log.warning("killed: did not drain in time", child=child.command.process)
                child.kill()
        if late:
            await asyncio.wait(late)

    async def _kill_when_asked(self) -> None:
        await self._stop_now.wait()
        for child in self._children.values():
            child.kill()

    async def _obey(self) -> None:
        async for received in self._sockets.messages():
            match received.message:
                case Stop(now):
                    log.info("asked to stop", sender=received.sender.process, now=now)
                    self.stop(now=now)
                case SetRunning(process, running):
                    log.info("asked", child=process, running=running, sender=received.sender.process)
                    if process in self._children:
                        self._children[process].want(running)

    async def _listen(self) -> None:
        self._sockets.subscribe(self._children)
        async for sender, status in self._sockets.broadcasts():
            child = self._children.get(sender.process)
            if child is not None and not isinstance(status, SupervisorStatus):
                child.hear(sender, status)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for child in self._children.values():
                try:
                    child.look()
                except Exception:
                    log.exception("could not look after a process", child=child.command.process)

    def _changed(self) -> None:
        self._heartbeat.poke()
        try:
            self._on_change([child.status for child in self._children.values()])
        except Exception:  # a terminal that went away, for one
            log.exception("could not show what changed")

    def _make_status(self) -> SupervisorStatus:
        self._seq += 1
        children = [child.status for child in self._children.values()]
        return SupervisorStatus(self._seq, self._host, os.getpid(), children, self._stop.is_set())
