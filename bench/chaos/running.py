"""A mesh that the harness started with `mesh up`, and what is done to its processes."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from bench.chaos.deployment import MESH_NAME, Deployment
from bench.chaos.observer import SUPERVISOR, Observer
from bench.chaos.relay import Relay, routes
from mesh.errors import UserError
from mesh.topology.schema import LOCAL_HOST

UP_S, DOWN_S = 180.0, 150.0
REST_S = 60.0
POLL_S = 0.02


class WaitedInVainError(RuntimeError):
    """Something that a scenario counts on did not come true in time. The message says what."""


async def until(condition: Callable[[], object], what: str, limit_s: float = REST_S) -> None:
    """Raise `WaitedInVainError` at the deadline."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise WaitedInVainError(f"not within {limit_s:g} s: {what}")
        await asyncio.sleep(POLL_S)


def is_alive(pid: int) -> bool:
    """Not even a zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class RunningMesh:
    """``relay`` is None where processes talk to each other directly."""

    def __init__(self, deployment: Deployment, observer: Observer, relay: Relay | None, cache: Path) -> None:
        self.deployment = deployment
        self.observer = observer
        self.relay = relay
        self._environment = {
            **os.environ,
            "MESHSERVE_RUNTIME_DIR": str(deployment.runtime),
            "MESHSERVE_CACHE": str(cache),
        }

    async def up(self) -> None:
        """Raise `UserError` if it does not start."""
        starting = asyncio.gather(*map(self.start_host, self.deployment.hosts))
        if self.relay is not None:
            await self._insert(self.relay, starting)
        await starting
        await until(lambda: not self.observer.not_at_rest(), "the mesh is ready")

    async def start_host(self, host: str) -> None:
        """Raise `UserError` if it does not start."""
        words = () if host == LOCAL_HOST else ("--host", host)
        code, said = await self.command("up", "--detach", *words, limit_s=UP_S)
        if code:
            raise UserError(f"the mesh of {self.deployment.path} did not start: {said}")

    async def _insert(self, relay: Relay, starting: "asyncio.Future[list[None]]") -> None:
        """Once `mesh up` has swept away old sockets: a process that connects earlier tries again."""
        pid = self.deployment.runtime / MESH_NAME / f"{self.deployment.gateways[0]}.pid"
        await until(lambda: pid.exists() or starting.done(), "`mesh up` starts its processes", UP_S)
        await relay.start()

    async def command(self, *words: str, limit_s: float = 60.0) -> tuple[int, str]:
        """Exit code and output of `mesh WORD FILE ...`."""
        arguments = [words[0], str(self.deployment.path), *words[1:]]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mesh.cli",
            *arguments,
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

    async def keep_dead(self, processes: Iterable[str], for_s: float) -> int:
        """Kill each, and each of its next lives as soon as it shows; answer how many died."""
        ends_at, num_killed = time.monotonic() + for_s, 0
        names = list(processes)
        while time.monotonic() < ends_at:
            for process in names:
                if (pid := self._child_pid(process)) is not None:
                    self.signal(pid, signal.SIGKILL)
                    num_killed += 1
            await asyncio.sleep(POLL_S)
        return num_killed

    def _child_pid(self, process: str) -> int | None:
        """Also of one that has said nothing yet."""
        try:
            pid = int((self.deployment.runtime / MESH_NAME / f"{process}.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None
        return pid if is_alive(pid) else None

    async def rest(self, limit_s: float = REST_S) -> None:
        """Until all is as it began. Raise `WaitedInVainError` with what is not."""
        with suppress(WaitedInVainError):
            await until(lambda: not self.observer.not_at_rest(), "", limit_s)
        if reasons := self.observer.not_at_rest():
            raise WaitedInVainError(f"not at rest after {limit_s:g} s: {'; '.join(reasons)}")

    def memory(self) -> dict[str, int]:
        """Resident bytes by process that is alive."""
        found = {}
        for process, pid in self.observer.pids().items():
            with suppress(psutil.NoSuchProcess):
                found[process] = int(psutil.Process(pid).memory_info().rss)
        return found

    def surviving_processes(self) -> list[int]:
        """Ids of whatever of this mesh still runs, once it should have ended."""
        files = self.deployment.runtime.glob(f"{MESH_NAME}/*.pid")
        return [pid for file in files if (pid := self._child_pid(file.stem)) is not None]


@asynccontextmanager
async def running(deployment: Deployment, cache: Path) -> AsyncIterator[RunningMesh]:
    """The mesh until the end of the block."""
    relay = None
    if deployment.folders:
        folders = {name: deployment.folder(name) for name in (*deployment.gateways, SUPERVISOR, *deployment.engines)}
        relay = Relay(routes(folders))
        _share_incarnations(folders)
    async with Observer(deployment).listening() as observer:
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
