"""Keeps one process running: starts or adopts it, waits until it is ready, starts it again when it dies, stops it.

A process may also be on standby: it is started when it is wanted, and drains and ends when it is wanted no more.
Nothing that goes wrong with the files of one process, or with its start, ends the supervisor of all.
"""

import asyncio
import contextlib
import signal

import structlog

from mesh.process.incarnations import last_incarnation
from mesh.supervisor.processes.command import ChildCommand
from mesh.supervisor.processes.incarnation import Incarnation
from mesh.supervisor.processes.pidfile import PidRecord
from mesh.supervisor.processes.restarts import GiveUpRestarting, ProcessExit, not_started
from mesh.supervisor.processes.surroundings import Surroundings
from mesh.supervisor.processes.watchdog import Watchdog
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.placement import PlacementStatus
from mesh.wire.status import ChildStatus, EngineStatus, GatewayStatus

TROUBLE_S = 1.0  # after something unforeseen
KILL_S = 10.0  # beyond the time that a process has to drain

log = structlog.get_logger()


class Child:
    """One process under supervision. ``found``: its incarnation that runs already, if there is one."""

    def __init__(self, command: ChildCommand, around: Surroundings, found: PidRecord | None = None) -> None:
        self.command = command
        self.gave_up: str | None = None
        self.settled = asyncio.Event()  # became ready once, never will, or is on standby
        self._around = around
        self._found = found
        self._restarts = around.make_restart_policy()
        self._watchdog: Watchdog | None = None  # of an incarnation that is ready
        self._why_killed = ""
        self._incarnation: Incarnation | None = None
        self._state = "starting"
        self._ready = asyncio.Event()
        self._ready_at: float | None = None
        self._num_restarts = 0
        self._last_exit: str | None = None
        self._heard_incarnation = 0
        self._ended_incarnation = 0
        self._stopping = asyncio.Event()
        self._wanted = found is not None or not command.is_standby
        self._is_held = False  # it is not to start again, as there may be a successor
        self._is_leaving = False  # this incarnation ends because it was not wanted
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
            self._incarnation.pid if self._incarnation else None,
            self._state,
            self._num_restarts,
            self._last_exit,
            self._ended_incarnation,
        )

    def hear(self, sender: Sender, status: EngineStatus | GatewayStatus | PlacementStatus) -> None:
        """Take what a process of this name says of itself."""
        if self._incarnation is None or self._incarnation.pid != status.pid:
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

    @property
    def is_ending(self) -> bool:
        """Say whether this process ends, or has ended for good and is among the others for a moment yet."""
        return self._stopping.is_set() or self._state == "leaving"

    def look(self) -> None:
        """End the process if it will not get on by itself; it is started again. Make lost files again."""
        if self._incarnation is not None:
            self._incarnation.file.keep()
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
        if not running and self._incarnation is not None:
            self._ask_to_end()
            self._enter("leaving")

    def renew(self) -> None:
        """Let the process drain and end, and start it again at once: with its command of now."""
        if self._incarnation is not None and self._wanted and not self._stopping.is_set():
            self._restarts = self._around.make_restart_policy()
            self._ask_to_end()
            self._enter("leaving")

    def end_life(self) -> None:
        """End the process at once, without draining it."""
        self._signal(signal.SIGKILL)

    def hold(self) -> None:
        """A successor is about to start, which asks the process to end when it serves: then it is not started again."""
        self._is_held = True

    def release(self) -> None:
        """There is no successor: the process is to run as before."""
        self._is_held = False
        self.want(True)

    def succeeded(self) -> None:
        """Note that the successor serves: the process ends by itself."""
        self._stop()
        self._is_leaving = True
        self._enter("leaving")

    def _ask_to_end(self) -> None:
        self._is_leaving = True
        if self._incarnation is not None:
            self._incarnation.ask_to_end()

    async def run(self) -> None:
        """Returns when the process is stopped, or given up."""
        try:
            while self._has_process or not (self._stopping.is_set() or self.gave_up is not None):
                await self._go_on()
        finally:
            self._enter("stopped")
            self.settled.set()

    @property
    def _has_process(self) -> bool:
        """As far as is known."""
        return self._incarnation is not None or self._found is not None

    async def _go_on(self) -> None:
        try:
            if self._has_process or self._wanted:
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
        """One incarnation of the process, and what becomes of it afterwards."""
        end = await self._live()
        if self._is_held:
            self._wanted = False
        if self._stopping.is_set() or self._is_leaving or self._is_held:
            return
        decision = self._restarts.on_exit(end, self._ready_for())
        log.warning("process ended", child=self.command.process, exit=str(end), decision=repr(decision))
        if isinstance(decision, GiveUpRestarting):
            self._give_up(decision.reason)
            return
        self._enter("restarting")
        await self._pause(decision.delay_s)
        if self._wanted:
            self._num_restarts += 1

    def _give_up(self, reason: str) -> None:
        """For good while the mesh starts. Of a running mesh it can be asked for again, when what is wrong is mended."""
        if self.settled.is_set() or self._around.is_takeover:
            self._wanted = False
        else:
            self.gave_up = reason

    async def _live(self) -> ProcessExit:
        """One life of the process, or the rest of it."""
        if self._incarnation is None:
            self._begin()
            self._incarnation = self._adopt()
        if self._incarnation is None:
            if self._stopping.is_set() or not self._wanted:
                self._is_leaving = True
                return ProcessExit(None)
            try:
                self._incarnation = await self._start()
            except OSError as error:
                end = not_started(self.command.argv[0], error)
                self._last_exit = str(end)
                return end
        self._enter("leaving" if self._is_leaving else "running" if self._ready.is_set() else "starting")
        if self._stopping.is_set() or self._is_leaving or not self._wanted:  # since before it was started, perhaps
            self._ask_to_end()
        late = await self._is_late(self._incarnation)
        returncode = await self._incarnation.wait()
        return self._declare_dead(self._incarnation, returncode, late)

    def _begin(self) -> None:
        self._ready.clear()
        self._ready_at, self._watchdog, self._why_killed = None, None, ""
        self._is_leaving = False
        self._heard_incarnation = 0

    def _adopt(self) -> Incarnation | None:
        """The incarnation that was found, unless it has ended since."""
        incarnation = None if self._found is None else Incarnation.adopt(self._found, self._around)
        self._found = None
        if incarnation is not None:
            self._is_leaving = incarnation.file.record.is_leaving
        return incarnation

    async def _start(self) -> Incarnation:
        self._ended_incarnation = max(self._ended_incarnation, self._last_incarnation())
        return await Incarnation.start(self.command, self._around)

    def _declare_dead(self, incarnation: Incarnation, returncode: int | None, late: str) -> ProcessExit:
        """Everything of the incarnation that has ended; how it ended is answered."""
        end = ProcessExit(returncode, late or self._why_killed or incarnation.last_line())
        self._ended_incarnation = max(self._ended_incarnation, self._heard_incarnation, self._last_incarnation())
        self._incarnation = self._watchdog = None
        incarnation.forget()
        if not (self._stopping.is_set() or self._is_leaving or self._is_held):
            self._last_exit = str(end)
        return end

    def leave_alone(self) -> None:
        """Watch over the process no longer: somebody else does from now on."""
        if self._incarnation is not None:
            self._incarnation.close()
            self._incarnation = None

    def _last_incarnation(self) -> int:
        try:
            return last_incarnation(self._around.runtime, self.command.process)
        except (OSError, ValueError) as error:
            log.warning("incarnation not known", child=self.command.process, reason=str(error))
            return 0

    async def _is_late(self, incarnation: Incarnation) -> str:
        """Kill a process that does not become ready in time, and say so; empty if it did, or ended.

        One that was asked to end before it was adopted has as long as any other to drain.
        """
        limit_s, problem = self._around.start_s, "not ready"
        if self._is_leaving:
            limit_s, problem = self._around.drain_s + KILL_S, "not drained"
        waits = [asyncio.ensure_future(self._ready.wait()), asyncio.ensure_future(incarnation.wait())]
        try:
            done, _ = await asyncio.wait(waits, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if done:
            return ""
        incarnation.signal(signal.SIGKILL)
        return f"{problem} after {limit_s:g} s"

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
        if self._incarnation is not None:
            self._incarnation.signal(number)

    def _enter(self, state: str) -> None:
        self._state = state
        self._around.changed()
