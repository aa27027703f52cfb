"""Keeps one process running: starts it, waits until it is ready, starts it again when it dies, stops it.

A process may also be on standby: it is started when it is wanted, and drains and ends when it is wanted no more.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import structlog

from mesh import logs
from mesh.clock import Clock
from mesh.messages import ChildStatus, EngineStatus, GatewayStatus, PlacementStatus, ProcessState
from mesh.process import last_incarnation
from mesh.supervisor.command import ChildCommand
from mesh.supervisor.pidfile import remove_pid, write_pid
from mesh.supervisor.restarts import Exit, GiveUp, RestartPolicy
from mesh.supervisor.watchdog import Watchdog

LAST_LINE_BYTES = 4096

log = structlog.get_logger()


class Child:
    """One process under supervision. ``changed`` is called after each change of what `status` answers."""

    def __init__(
        self,
        command: ChildCommand,
        *,
        runtime: Path,
        make_restart_policy: Callable[[], RestartPolicy],
        start_s: float,
        clock: Clock,
        changed: Callable[[], None],
        make_watchdog: Callable[[], Watchdog] = Watchdog,
    ) -> None:
        self.command = command
        self.gave_up: str | None = None
        self.settled = asyncio.Event()  # became ready once, never will, or is on standby
        self._runtime = runtime
        self._make_restart_policy = make_restart_policy
        self._restarts = make_restart_policy()
        self._start_s = start_s
        self._clock = clock
        self._changed = changed
        self._make_watchdog = make_watchdog
        self._watchdog: Watchdog | None = None  # of a life that is ready
        self._why_killed = ""
        self._process: asyncio.subprocess.Process | None = None
        self._state = "starting"
        self._ready = asyncio.Event()
        self._ready_at: float | None = None
        self._num_restarts = 0
        self._last_exit: str | None = None
        self._ended_incarnation = 0
        self._stopping = asyncio.Event()
        self._wanted = not command.is_standby
        self._is_leaving = False  # this life ends because it was not wanted
        self._changed_mind = asyncio.Event()

    def __repr__(self) -> str:
        return (
            f"<Child {self.command.process} {self._state} restarts={self._num_restarts} last_exit={self._last_exit!r}>"
        )

    @property
    def status(self) -> ChildStatus:
        pid = self._process.pid if self._process else None
        return ChildStatus(
            self.command.process,
            self.command.kind,
            pid,
            self._state,
            self._num_restarts,
            self._last_exit,
            self._ended_incarnation,
        )

    def hear(self, status: EngineStatus | GatewayStatus | PlacementStatus) -> None:
        """What a process of this name says of itself."""
        if self._process is None or self._process.pid != status.pid:
            return
        if status.state is ProcessState.READY and not (self._ready.is_set() or self._is_leaving):
            self._ready_at = self._clock.now()
            self._watchdog = self._make_watchdog()
            self._ready.set()
            self.settled.set()
            self._enter("running")
        if self._watchdog is not None:
            self._watchdog.heard(status)

    def look(self) -> None:
        """End the process if it will not get on by itself; it is started again."""
        if self._watchdog is None or self._stopping.is_set():
            return
        reason = self._watchdog.look(self._clock.now())
        if reason is not None:
            log.error("killed a process that does not get on", child=self.command.process, reason=reason)
            self._watchdog, self._why_killed = None, reason
            self._signal("kill")

    def want(self, running: bool) -> None:
        """Start the process if it is on standby, or let it drain and end: what it serves moves or ends."""
        if running is self._wanted or self._stopping.is_set():
            return
        self._wanted = running
        self._changed_mind.set()
        if not running and self._process is not None:
            self._is_leaving = True
            self._signal("terminate")
            self._enter("leaving")

    async def run(self) -> None:
        """Returns when the process is stopped, or given up."""
        try:
            while not self._stopping.is_set() and self.gave_up is None:
                if self._wanted:
                    await self._live_and_decide()
                else:
                    await self._stand_by()
        finally:
            self._enter("stopped")
            self.settled.set()

    async def _stand_by(self) -> None:
        self._restarts = self._make_restart_policy()
        self._enter("standby")
        self.settled.set()
        await self._pause(None)

    async def _live_and_decide(self) -> None:
        """One life of the process, and what becomes of it afterwards."""
        end = await self._live()
        if self._stopping.is_set() or self._is_leaving:
            return
        decision = self._restarts.on_exit(end, self._ready_for())
        log.warning("process ended", child=self.command.process, exit=str(end), decision=repr(decision))
        if isinstance(decision, GiveUp):
            self._give_up(decision.reason)
            return
        self._enter("restarting")
        await self._pause(decision.delay_s)
        if self._wanted:
            self._num_restarts += 1

    def _give_up(self, reason: str) -> None:
        """For good while the mesh starts. Of a running mesh it can be asked for again, when what is wrong is mended."""
        if self.settled.is_set():
            self._wanted = False
        else:
            self.gave_up = reason

    async def _live(self) -> Exit:
        """One life of the process."""
        self._ready.clear()
        self._ready_at, self._watchdog, self._why_killed = None, None, ""
        self._is_leaving = False
        output = logs.output_file(self._runtime, self.command.process)
        try:
            self._process = await self._start(output)
        except OSError as error:
            return Exit(127, f"cannot start {self.command.argv[0]}: {error.strerror}")
        write_pid(self._runtime, self.command.process, self._process.pid)
        self._enter("starting")
        if self._stopping.is_set() or not self._wanted:
            self._is_leaving = True
            self._process.terminate()
        late = await self._is_late(self._process)
        returncode = await self._process.wait()
        self._ended_incarnation = last_incarnation(self._runtime, self.command.process)
        end = Exit(returncode, late or self._why_killed or _last_line(output))
        remove_pid(self._runtime, self.command.process)
        self._process = self._watchdog = None
        if not (self._stopping.is_set() or self._is_leaving):
            self._last_exit = str(end)
        return end

    async def _start(self, output: Path) -> asyncio.subprocess.Process:
        with _fresh(output) as file:
            return await asyncio.create_subprocess_exec(
                *self.command.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **self.command.env},
                start_new_session=True,  # a Ctrl-C on the terminal is the supervisor's to handle
            )

    async def _is_late(self, process: asyncio.subprocess.Process) -> str:
        """Kill a process that does not become ready in time, and say so; empty if it did, or ended."""
        waits = [asyncio.ensure_future(self._ready.wait()), asyncio.ensure_future(process.wait())]
        done, pending = await asyncio.wait(waits, timeout=self._start_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in pending:
            wait.cancel()
        if done:
            return ""
        process.kill()
        return f"not ready after {self._start_s:g} s"

    def _ready_for(self) -> float | None:
        return None if self._ready_at is None else self._clock.now() - self._ready_at

    async def _pause(self, delay_s: float | None) -> None:
        """Until the process is wanted, or not any more; ``delay_s`` at most."""
        self._changed_mind.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._changed_mind.wait()

    def terminate(self) -> None:
        """Ask the process to drain and end; it is not started again."""
        self._stop()
        self._signal("terminate")

    def kill(self) -> None:
        """End the process at once; it is not started again."""
        self._stop()
        self._signal("kill")

    def _stop(self) -> None:
        self._stopping.set()
        self._changed_mind.set()

    def _signal(self, how: str) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                getattr(self._process, how)()

    def _enter(self, state: str) -> None:
        self._state = state
        self._changed()


def _fresh(output: Path) -> IO[bytes]:
    """An empty output file; what the life before printed can still be read in the one beside it."""
    if output.exists():
        output.replace(output.with_suffix(".out.1"))
    return output.open("wb")


def _last_line(output: Path) -> str:
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - LAST_LINE_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
