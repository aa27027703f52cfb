"""A mesh that was started with `mesh up`, and what is done to its processes."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from mesh.errors import UserError
from mesh.supervisor.lock import holder
from mesh.supervisor.processes.pidfile import find_process, find_processes
from mesh.topology.schema import LOCAL_HOST
from tests.tools.harm.meshes import MESH_NAME, Deployment
from tests.tools.harm.observer import SUPERVISOR, Observer, observing
from tests.tools.harm.relay import Relay, routes

UP_S, DOWN_S = 180.0, 150.0
REST_S = 60.0
POLL_S = 0.02


class WaitedInVainError(RuntimeError):
    """Something that was counted on did not come true in time. The message says what."""


async def until(condition: Callable[[], object], what: str, limit_s: float = REST_S) -> None:
    """Raise `WaitedInVainError` at the deadline."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise WaitedInVainError(f"not within {limit_s:g} s: {what}")
        await asyncio.sleep(POLL_S)


class RunningMesh:
    """``relay`` is None where processes talk to each other directly."""

    def __init__(self, deployment: Deployment, observer: Observer, relay: Relay | None, cache: Path) -> None:
        self.deployment = deployment
        self.observer = observer
        self.relay = relay
        folders = {"MESHSERVE_RUNTIME_DIR": str(deployment.runtime), "MESHSERVE_CACHE": str(cache)}
        self._environment = {**os.environ, **folders}

    async def up(self) -> None:
        """Raise `UserError` if it does not start."""
        starting = asyncio.gather(*map(self.start_host, self.deployment.hosts))
        if self.relay is not None:  # once `mesh up` has swept away old sockets: who connects earlier tries again
            pid = self.deployment.runtime / MESH_NAME / f"{self.deployment.gateways[0]}.pid"
            await until(lambda: pid.exists() or starting.done(), "`mesh up` starts its processes", UP_S)
            self.relay.start()
        await starting
        await self.rest()

    async def start_host(self, host: str = LOCAL_HOST) -> None:
        """Adopt what still runs there. Raise `UserError` if it does not start."""
        words = () if host == LOCAL_HOST else ("--host", host)
        code, said = await self.command("up", "--detach", *words, limit_s=UP_S)
        if code:
            raise UserError(f"the mesh of {self.deployment.path} did not start: {said}")

    async def command(self, *words: str, limit_s: float) -> tuple[int, str]:
        """Exit code and output of `mesh WORD FILE ...`."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mesh.cli", words[0], str(self.deployment.path), *words[1:]),
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), limit_s)
        except TimeoutError:
            process.kill()
            await process.wait()
            return 1, f"`mesh {words[0]}` did not end within {limit_s:g} s"
        return process.returncode or 0, output.decode(errors="replace").strip()

    async def down(self) -> None:
        """At once, whatever runs."""
        await self.command("down", "--now", limit_s=DOWN_S)
        if self.relay is not None:
            await self.relay.stop()

    async def rest(self, limit_s: float = REST_S) -> None:
        """Until all is as it began. Raise `WaitedInVainError` with what is not."""
        try:
            await until(lambda: not self.observer.not_at_rest(), "the mesh is at rest", limit_s)
        except WaitedInVainError as error:
            raise WaitedInVainError(f"{error}: {'; '.join(self.observer.not_at_rest())}") from None

    # --- faults -------------------------------------------------------------------------------------------------------

    def pid(self, process: str) -> int:
        pid = self.observer.pid(process)
        if pid is None:
            raise WaitedInVainError(f"{process} is alive")
        return pid

    def kill(self, process: str) -> int:
        """SIGKILL; answers who it was."""
        pid = self.pid(process)
        self.signal(pid, signal.SIGKILL)
        return pid

    def signal(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        if number is signal.SIGKILL:
            self.observer.forget(pid)

    async def stop(self, process: str, for_s: float) -> int:
        """SIGSTOP, and SIGCONT later; answers who it was."""
        pid = self.pid(process)
        self.signal(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(for_s)
        finally:
            self.signal(pid, signal.SIGCONT)
        return pid

    async def born_again(self, process: str, old: int) -> None:
        """Until the process has another incarnation."""
        await until(lambda: self.observer.pid(process) not in (old, None), f"{process} ended and lives again")

    async def keep_dead(self, processes: Sequence[str], for_s: float) -> int:
        """Kill each, and each of its next lives as soon as it shows; answer how many died."""
        ends_at, killed, folder = time.monotonic() + for_s, set[int](), self.deployment.runtime / MESH_NAME
        while time.monotonic() < ends_at:
            for process in processes:
                if (found := find_process(folder, process)) is not None:  # also one that has said nothing yet
                    self.signal(found.pid, signal.SIGKILL)
                    killed.add(found.pid)
            await asyncio.sleep(POLL_S)
        return len(killed)

    def has_ended(self) -> bool:
        """Nothing of this mesh runs any more, its supervisor neither."""
        folder = self.deployment.runtime / MESH_NAME
        return next(find_processes(folder), None) is None and holder(folder, LOCAL_HOST) is None


@asynccontextmanager
async def running(deployment: Deployment, cache: Path) -> AsyncIterator[RunningMesh]:
    """The mesh until the end of the block."""
    relay = None
    if deployment.folders:
        folders = {name: deployment.folder(name) for name in (*deployment.gateways, SUPERVISOR, *deployment.engines)}
        relay = Relay(routes(folders))
        _share_incarnations(folders)
    async with observing(deployment) as observer:
        mesh = RunningMesh(deployment, observer, relay, cache)
        try:
            await mesh.up()
            yield mesh
        finally:
            await mesh.down()


def _share_incarnations(folders: Mapping[str, Path]) -> None:
    """The supervisor reads in its own folder which life of a process has ended."""
    for process, folder in folders.items():
        folder.mkdir(parents=True, exist_ok=True)
        if folder != folders[SUPERVISOR]:
            (folder / f"{process}.incarnation").symlink_to(folders[SUPERVISOR] / f"{process}.incarnation")
