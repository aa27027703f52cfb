"""Takes over processes that run already when ``mesh up`` starts, and says what becomes of them."""

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mesh.addresses import supervisor_id
from mesh.errors import CommandError
from mesh.process.logs import configure, log_file
from mesh.process.runtime_folder import make_runtime_dir
from mesh.process.ties import NO_TIES, Ties
from mesh.supervisor import lock
from mesh.supervisor.changes import check_change
from mesh.supervisor.lock import Holder
from mesh.supervisor.orphans import find_orphans
from mesh.supervisor.plan import StartPlan, make_plan
from mesh.supervisor.preflight import check_ports, remove_stale_sockets
from mesh.supervisor.processes.command import ChildCommand, child_commands
from mesh.supervisor.processes.copies import TopologyCopy
from mesh.supervisor.processes.pidfile import PidRecord, find_processes
from mesh.supervisor.supervisor import STEP_DOWN
from mesh.topology.schema import Topology

STEP_DOWN_S = 10.0


@dataclass(frozen=True, slots=True)
class Takeover:
    """Prepares a supervisor to take over what runs. ``copy``: of the topology's text. ``commands``: of all processes of
    this host.
    """

    topology: Topology
    host: str
    runtime: Path
    copy: TopologyCopy
    commands: tuple[ChildCommand, ...]
    replace_all: bool
    say: Callable[[str], None]
    ties: Ties = NO_TIES

    @classmethod
    def plan(
        cls,
        topology: Topology,
        host: str,
        text: str,
        say: Callable[[str], None],
        *,
        replace_all: bool = False,
        ties: Ties = NO_TIES,
    ) -> "Takeover":
        """Raise `UserError` if there is nothing to do, or it cannot be done while the mesh runs."""

        runtime = make_runtime_dir(topology)
        copy = TopologyCopy(runtime, text)
        commands = tuple(child_commands(topology, host, copy.path, ties))
        takeover = cls(topology, host, runtime, copy, commands, replace_all, say, ties)
        check_change(runtime, list(find_processes(runtime)), topology)
        if lock.holder(runtime, host) is not None and not takeover._make_plan(takeover._find()).changes_anything:
            raise lock.refuse(runtime, host)
        return takeover

    @contextmanager
    def begun(self) -> Iterator[StartPlan]:
        """Be the one who supervises this host. Raise `UserError` or `CommandError` if somebody else remains it."""

        if (running := lock.holder(self.runtime, self.host)) is not None:
            self._say(self._find())
            self._relieve(running)
        held = lock.acquire(self.runtime, self.host, self.topology.path)
        try:
            configure(
                supervisor_id(self.host), self.topology.log_level, log_file(self.runtime, supervisor_id(self.host))
            )
            found = self._find()
            if running is None:
                self._say(found)
            plan = self._make_plan(found)
            self._make_room(plan)
            yield plan
        finally:
            held.release()

    def _find(self) -> list[PidRecord]:

        return find_orphans(self.runtime, [self.host])

    def _make_plan(self, found: list[PidRecord]) -> StartPlan:

        return make_plan(self.commands, found, replace_all=self.replace_all)

    def _say(self, found: list[PidRecord]) -> None:
        if found:
            for line in self._make_plan(found).lines():
                self.say(line)

    def _relieve(self, running: Holder) -> None:
        """The supervisor of now leaves its processes running, and ends. A signal reaches it without files."""

        try:
            descriptor = os.pidfd_open(running.pid)
        except ProcessLookupError:
            return
        try:
            if lock.holder(self.runtime, self.host) == running:  # and so is whoever the descriptor holds on to
                signal.pidfd_send_signal(descriptor, STEP_DOWN)
            has_ended, _, _ = select.select([descriptor], [], [], STEP_DOWN_S)
        finally:
            os.close(descriptor)
        if not has_ended:
            raise CommandError(
                f"process {running.pid}, which supervises mesh {self.topology.name!r}, does not step down within "
                f"{STEP_DOWN_S:g} s; nothing was changed (its log: {self.runtime}/logs)"
            )

    def _make_room(self, plan: StartPlan) -> None:
        """Remove what dead processes left; make sure that gateways which are to start can listen."""

        running = {record.process for record in (*plan.current.values(), *plan.leaving, *plan.removed)}
        remove_stale_sockets(self.topology, self.host, running)
        check_ports(self.topology, self.host, set(plan.current))
        self.copy.remove_others()
