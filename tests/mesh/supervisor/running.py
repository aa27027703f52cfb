"""A supervisor with real child processes, in the test's own event loop."""

import asyncio
import contextlib
import time
from dataclasses import replace

from mesh.addresses import supervisor_id
from mesh.clock import SystemClock
from mesh.directory import directory
from mesh.process.process import open_sockets
from mesh.process.runtime_folder import make_runtime_dir
from mesh.supervisor.orphans import find_orphans
from mesh.supervisor.plan import make_plan
from mesh.supervisor.processes.copies import TopologyCopy
from mesh.supervisor.processes.restarts import RestartPolicy
from mesh.supervisor.processes.watchdog import Watchdog
from mesh.supervisor.supervisor import Supervisor
from mesh.wire.frames import Sender
from mesh.wire.messages import SupervisorMessage

DEADLINE_S = 60.0


class Run:
    """A supervisor at work, and what it said so far."""

    def __init__(self, topology, commands, make_watchdog=Watchdog, replace_all=False, **timing):
        self.runtime = make_runtime_dir(topology)
        found = find_orphans(self.runtime, ["local"])
        me = Sender(supervisor_id("local"), time.monotonic_ns())
        self.sockets = open_sockets(me, SupervisorMessage, directory(topology), None)
        self.plan = make_plan(commands, found, replace_all=replace_all)
        self.problem = None
        self.ready = asyncio.Event()
        self.changed = asyncio.Event()
        self.states = []
        self.breaks = False  # what is shown of changes
        self.supervisor = Supervisor(
            "local",
            commands=commands,
            plan=self.plan,
            sockets=self.sockets,
            runtime=self.runtime,
            topology=TopologyCopy(self.runtime, topology.path.read_text()),
            timing=replace(topology.timing, **timing),
            clock=SystemClock(),
            on_change=self.note,
            make_restart_policy=lambda: RestartPolicy(first_s=0.01),
            make_watchdog=make_watchdog,
        )

    def told(self, problem):
        self.problem = problem
        self.ready.set()

    def note(self, children):
        self.states.append({child.process: child for child in children})
        self.changed.set()
        if self.breaks:
            raise OSError("the terminal went away")

    def child(self, process):
        return self.states[-1][process]

    async def until(self, condition):
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@contextlib.asynccontextmanager
async def running(topology, commands, **options):
    run = Run(topology, commands, **options)
    task = asyncio.create_task(run.supervisor.run(run.told))
    run.task = task
    try:
        yield run
    finally:
        run.supervisor.stop(now=True)
        with contextlib.suppress(BaseException):
            await task
        await run.sockets.close()
