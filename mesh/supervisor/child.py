"""Keeps one process running: starts or adopts it, waits until it is ready, starts it again when it dies, stops it.

A process may also be on standby: it is started when it is wanted, and drains and ends when it is wanted no more.
Nothing that goes wrong with the files of one process, or with its start, ends the supervisor of all.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import structlog

from mesh import logs
from mesh.clock import Clock
from mesh.messages import ChildStatus, EngineStatus, GatewayStatus, PlacementStatus, ProcessState, Sender
from mesh.process import last_incarnation
from mesh.supervisor.command import ChildCommand
from mesh.supervisor.life import Life
from mesh.supervisor.output import open_found, open_output, read_last_line
from mesh.supervisor.pidfile import PidFile, Record, remove_pid, start_of
from mesh.supervisor.restarts import Exit, GiveUp, RestartPolicy, not_started
from mesh.supervisor.watchdog import Watchdog

TROUBLE_S = 1.0  # after something unforeseen

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the children of one supervisor share. ``changed`` is called after each change of what a child's status is.

    ``start_s``: that a process has until it must be ready.
    """

    host: str
    runtime: Path
    start_s: float
    clock: Clock
    changed: Callable[[], None]
    make_restart_policy: Callable[[], RestartPolicy] = RestartPolicy
    make_watchdog: Callable[[], Watchdog] = Watchdog


class Child:
    """One process under supervision. ``found``: its life, if it lives already."""

    def __init__(self, command: ChildCommand, around: Surroundings, found: Record | None = None) -> None:
        self.command = command
        self.gave_up: str | None = None
        self.settled = asyncio.Event()  # became ready once, never will, or is on standby
        self._around = around
        self._found = found
        self._restarts = around.make_restart_policy()
        self._watchdog: Watchdog | None = None  # of a life that is ready
        self._why_killed = ""
        self._life: Life | None = None
        self._pid_file: PidFile | None = None  # of that life
        self._output: IO[bytes] | None = None
        self._state = "starting"
        self._ready = asyncio.Event()
        self._ready_at: float | None = None
        self._num_restarts = 0
        self._last_exit: str | None = None
        self._heard_incarnation = 0
        self._ended_incarnation = 0
        self._stopping = asyncio.Event()
        self._wanted = found is not None or not command.is_standby
        self._is_leaving = False  # this life ends because it was not wanted
        self._changed_mind = asyncio.Event()

    def __repr__(self) -> str:
        return (
            f"<Child {self.command.process} {self._state} restarts={self._num_restarts} last_exit={self._last_exit!r}>"
        )

    @property
    def status(self) -> ChildStatus:
        return ChildStatus(
            self.command.process,
            self.command.kind,
            self._life.pid if self._life else None,
            self._state,
            self._num_restarts,
            self._last_exit,
            self._ended_incarnation,
        )

    def hear(self, sender: Sender, status: EngineStatus | GatewayStatus | PlacementStatus) -> None:
        """What a process of this name says of itself."""
        if self._life is None or self._life.pid != status.pid:
            return
        self._heard_incarnation = sender.incarnation
        if status.state is not ProcessState.STARTING and not (self._ready.is_set() or self._is_leaving):
            self._ready_at = self._around.clock.now()
            self._watchdog = self._around.make_watchdog()
            self._ready.set()
            self.settled.set()
            self._enter("running")
        if self._watchdog is not None:
            self._watchdog.heard(status)

    def look(self) -> None:
        """End the process if it will not get on by itself; it is started again. Make lost files again."""
        if self._pid_file is not None:
            self._pid_file.keep()
        if self._watchdog is None or self._stopping.is_set():
            return
        reason = self._watchdog.look(self._around.clock.now())
        if reason is not None:
            log.error("killed a process that does not get on", child=self.command.process, reason=reason)
            self._watchdog, self._why_killed = None, reason
            self._signal(signal.SIGKILL)

    def want(self, running: bool) -> None:
        """Start the process if it is on standby, or let it drain and end: what it serves moves or ends."""
        if running is self._wanted or self._stopping.is_set():
            return
        self._wanted = running
        self._changed_mind.set()
        if not running and self._life is not None:
            self._ask_to_end()
            self._enter("leaving")

    def _ask_to_end(self) -> None:
        """Once: a second time would end it at once."""
        self._is_leaving = True
        if self._pid_file is not None and not self._pid_file.record.is_leaving:
            self._pid_file.leaving()
            self._signal(signal.SIGTERM)

    async def run(self) -> None:
        """Returns when the process is stopped, or given up."""
        try:
            while not self._stopping.is_set() and self.gave_up is None:
                await self._go_on()
        finally:
            self._enter("stopped")
            self.settled.set()

    async def _go_on(self) -> None:
        try:
            if self._life is not None or self._found is not None or self._wanted:
                await self._live_and_decide()
            else:
                await self._stand_by()
        except Exception:
            log.exception("a process is not looked after for a moment", child=self.command.process)
            await self._pause(TROUBLE_S)

    async def _stand_by(self) -> None:
        self._restarts = self._around.make_restart_policy()
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
        """One life of the process, or the rest of it."""
        if self._life is None:
            self._begin()
            try:
                self._life = self._adopt() or self._start()
            except OSError as error:
                end = not_started(self.command.argv[0], error)
                self._last_exit = str(end)
                return end
            self._enter("starting")
        if self._stopping.is_set() or not self._wanted:
            self._ask_to_end()
        late = await self._is_late(self._life)
        returncode = await self._life.wait()
        return self._bury(returncode, late)

    def _begin(self) -> None:
        self._ready.clear()
        self._ready_at, self._watchdog, self._why_killed = None, None, ""
        self._is_leaving = False
        self._heard_incarnation = 0

    def _adopt(self) -> Life | None:
        """The life that was found, unless it has ended since."""
        found, self._found = self._found, None
        life = None if found is None else Life.adopt(found)
        if found is None or life is None:
            return None
        self._is_leaving = found.is_leaving
        self._output = open_found(self._output_path)
        self._pid_file = PidFile(self._around.runtime, found)
        return life

    def _start(self) -> Life:
        self._ended_incarnation = max(self._ended_incarnation, self._last_incarnation())
        self._output = open_output(self._output_path)
        try:
            life = Life.start(self.command.argv, self.command.env, self._output)
        except OSError:
            self._output.close()
            raise
        self._pid_file = self._record(life)
        return life

    def _record(self, life: Life) -> PidFile:
        command, started = self.command, start_of(life.pid) or ""
        file = PidFile(
            self._around.runtime,
            Record(life.pid, started, command.process, command.kind, self._around.host, command.digest),
        )
        file.write()
        return file

    def _bury(self, returncode: int | None, late: str) -> Exit:
        """Everything of the life that has ended; how it ended is answered."""
        assert self._life is not None
        last_line = "" if self._output is None else read_last_line(self._output)
        end = Exit(returncode, late or self._why_killed or last_line)
        self._ended_incarnation = max(self._ended_incarnation, self._heard_incarnation, self._last_incarnation())
        self.leave_alone()
        remove_pid(self._around.runtime, self.command.process)
        self._watchdog = None
        if not (self._stopping.is_set() or self._is_leaving):
            self._last_exit = str(end)
        return end

    def leave_alone(self) -> None:
        """Watch over the process no longer, whether it has ended or not."""
        if self._life is not None:
            self._life.close()
        if self._output is not None:
            self._output.close()
        self._life = self._pid_file = self._output = None

    def _last_incarnation(self) -> int:
        try:
            return last_incarnation(self._around.runtime, self.command.process)
        except (OSError, ValueError) as error:
            log.warning("incarnation not known", child=self.command.process, reason=str(error))
            return 0

    @property
    def _output_path(self) -> Path:
        return logs.output_file(self._around.runtime, self.command.process)

    async def _is_late(self, life: Life) -> str:
        """Kill a process that does not become ready in time, and say so; empty if it did, or ended."""
        waits = [asyncio.ensure_future(self._ready.wait()), asyncio.ensure_future(life.wait())]
        try:
            done, _ = await asyncio.wait(waits, timeout=self._around.start_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if done:
            return ""
        life.signal(signal.SIGKILL)
        return f"not ready after {self._around.start_s:g} s"

    def _ready_for(self) -> float | None:
        return None if self._ready_at is None else self._around.clock.now() - self._ready_at

    async def _pause(self, delay_s: float | None) -> None:
        """Until the process is wanted, or not any more; ``delay_s`` at most."""
        self._changed_mind.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._changed_mind.wait()

    def terminate(self) -> None:
        """Ask the process to drain and end; it is not started again."""
        self._stop()
        self._ask_to_end()

    def kill(self) -> None:
        """End the process at once; it is not started again."""
        self._stop()
        self._signal(signal.SIGKILL)

    def _stop(self) -> None:
        self._stopping.set()
        self._changed_mind.set()

    def _signal(self, number: signal.Signals) -> None:
        if self._life is not None:
            self._life.signal(number)

    def _enter(self, state: str) -> None:
        self._state = state
        self._around.changed()
