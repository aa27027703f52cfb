"""Runs the supervisor of a host that a cluster's engine has placed, in a thread that lives as long as the process.

The supervisor is the one that `mesh up` runs anywhere. Its processes are told where other hosts are and what the mesh's
key is. The kernel ends them with the thread that started them: the engine may give their room to somebody else at once.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import structlog

from mesh.errors import CommandError, UserError
from mesh.process.process import first_line
from mesh.process.runtime_folder import make_runtime_dir
from mesh.process.ties import Ties, hold_in_memory, write_places
from mesh.sockets.curve import CurveKey
from mesh.supervisor.hosting import host as supervise
from mesh.supervisor.hosting import prepare_models
from mesh.supervisor.preflight import check_interpreters
from mesh.supervisor.supervisor import Supervisor
from mesh.supervisor.takeover import Takeover
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.hosts import HostPlace
from mesh.wire.status import ChildStatus

log = structlog.get_logger()

ComeUp = Callable[[Topology], list[HostPlace]]  # takes ports, and answers where all hosts are


class HostState(NamedTuple):
    """How a host is, and which topology it runs. ``wants``: processes of other hosts that were asked for here."""

    state: str  # preparing, starting, ready, failed, stopped
    problem: str
    children: Sequence[ChildStatus]
    text: str  # of the topology
    wants: Sequence[str] = ()


class HostAssignment(NamedTuple):
    """What a host is to run. ``key``: of the mesh, in JSON; empty if the topology names its file."""

    path: str
    text: str
    key: bytes


class HostRunner:
    """The methods may be called from any thread; they do not wait."""

    def __init__(self, host: str, assignment: HostAssignment, come_up: ComeUp) -> None:
        self._host = host
        self._assignment = assignment
        self._ask_for_place = come_up
        self._places: list[HostPlace] = []
        self._supervisor: Supervisor | None = None
        self._state, self._problem = "preparing", ""
        self._children: Sequence[ChildStatus] = ()
        self._wants: dict[str, None] = {}
        self._is_asked_to_stop = False
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        Thread(target=self._run, name="supervisor", daemon=True).start()

    def __repr__(self) -> str:
        return f"<HostRunner {self._host} {self._state}>"

    def state(self) -> HostState:
        """Say how the host is, and what was asked for here since this was called last."""
        wants, self._wants = self._wants, {}
        return HostState(self._state, self._problem, self._children, self._assignment.text, tuple(wants))

    def topology(self) -> Topology:
        """Return what it is to run. Raise `UserError` if that cannot be read."""
        return load(Path(self._assignment.path), self._assignment.text)

    def hosts_moved(self, places: Sequence[HostPlace]) -> None:
        """Find other hosts where they are now."""
        self._loop.call_soon_threadsafe(self._take_places, list(places))

    def change(self, assignment: HostAssignment) -> None:
        """Run this topology from now on: what is outdated is replaced, one process after the other."""
        self._loop.call_soon_threadsafe(self._take_assignment, assignment)

    def stop(self, now: bool) -> None:
        """Drain and end all processes."""
        self._loop.call_soon_threadsafe(self._stop, now)

    # --- in the thread of the supervisor ------------------------------------------------------------------------------

    def _take_places(self, places: list[HostPlace]) -> None:
        if places != self._places:
            self._places = places
            if self._supervisor is not None:
                self._supervisor.hosts_moved(places)

    def _take_assignment(self, assignment: HostAssignment) -> None:
        if assignment != self._assignment:
            self._assignment = assignment
            self._changed.set()
            if self._supervisor is not None:
                self._supervisor.step_down()

    def _stop(self, now: bool) -> None:
        self._is_asked_to_stop = True
        self._changed.set()
        if self._supervisor is not None:
            self._supervisor.stop(now=now)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._live())

    async def _live(self) -> None:
        ties: Ties | None = None
        while not self._is_asked_to_stop:
            self._changed.clear()
            try:
                topology = self.topology()
                ties = ties or self._come_up(topology)
                await self._serve(topology, ties)
            except (UserError, CommandError) as error:
                await self._fail(str(error))
            except Exception as error:
                log.exception("the supervisor of a host failed", host=self._host)
                await self._fail(f"internal error: {first_line(error)} (its log has a stack trace)")
        self._enter("stopped")

    async def _fail(self, problem: str) -> None:
        """Wait until something else is to be run."""
        self._supervisor = None
        self._enter("failed", problem)
        await self._changed.wait()

    def _come_up(self, topology: Topology) -> Ties:
        self._places = self._ask_for_place(topology)
        file = make_runtime_dir(topology) / f"places-{self._host}.json"
        write_places(file, self._places)
        key = self._assignment.key
        return Ties(file, hold_in_memory(CurveKey.of(key)) if key else None, os.getpid())

    async def _serve(self, topology: Topology, ties: Ties) -> None:
        """Supervise until it is asked to stop, or to run another topology."""
        self._enter("preparing")
        check_interpreters(topology, self._host)
        if await asyncio.to_thread(prepare_models, topology, self._host):
            raise UserError(f"{self._host}: the models cannot be prepared; its output says why")
        self._enter("starting")
        takeover = Takeover.plan(topology, self._host, self._assignment.text, self._say, replace_all=False, ties=ties)
        with takeover.begun() as plan:
            await supervise(
                takeover,
                plan,
                on_start=self._begin,
                on_change=self._note,
                on_ready=self._ready,
                on_demand=self._want,
            )
        self._supervisor = None

    def _begin(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        supervisor.hosts_moved(self._places)
        if self._is_asked_to_stop:
            supervisor.stop()

    def _note(self, children: Sequence[ChildStatus]) -> None:
        self._children = children

    def _want(self, process: str) -> None:
        self._wants[process] = None

    def _ready(self, problem: str | None) -> None:
        self._enter("ready", problem or "")

    def _enter(self, state: str, problem: str = "") -> None:
        self._state, self._problem = state, problem
        self._say(f"{self._host}: {state}" + (f": {problem}" if problem else ""))

    @staticmethod
    def _say(line: str) -> None:
        with suppress(OSError):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
