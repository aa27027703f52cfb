"""A whole mesh, started and stopped by the command that users type."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.live.ports import free_port
from mesh.cli.cluster import statuses_of
from mesh.process.fork_server import SHARED
from mesh.report import report
from mesh.topology.parse import load
from tests.commands import run_here
from tests.tools.warm import run_forked

# Commands that start nothing, and are asked for too often for a process each.
QUICK = frozenset(["down", "drain", "explain", "load", "logs", "migrate", "plan", "policy", "role", "start"])
QUICK |= frozenset(["profile", "services", "status", "stop", "unload"])
DEFAULT_TOPOLOGY = Path(__file__).parents[2] / "deploy/topology.toml"


def _has_loop() -> bool:
    """Whether an event loop runs in this thread, as Playwright's does: a command could not run another one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@dataclass(frozen=True)
class Mesh:
    """A running mesh. ``run`` is the `mesh` command."""

    topology: Path
    url: str
    env: dict[str, str]

    def run(self, *arguments: str, timeout_s: float = 180.0) -> "subprocess.CompletedProcess[str]":
        if arguments[0] in QUICK and threading.current_thread() is threading.main_thread() and not _has_loop():
            return run_here(*arguments)
        if arguments[0] == "up" and self.env.get(SHARED):  # not on Ray, which does not survive a fork
            return run_forked(["mesh.cli", *arguments], self.env, timeout_s)
        return subprocess.run(
            [sys.executable, "-m", "mesh.cli", *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    @property
    def admin_url(self) -> str:
        """Of its first gateway."""
        return str(self.status()["gateways"][0]["admin_url"])

    def status(self) -> dict[str, list[dict[str, object]]]:
        """What `mesh status --json` prints, without a process for each question."""
        topology = load(self.topology)
        return report(topology, asyncio.run(statuses_of(topology)))


StartMesh = Callable[..., Mesh]


@pytest.fixture(scope="module")
def start_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartMesh]:
    """Starts meshes from topology texts with ``{port}`` in them, and stops them at the end."""
    started: list[Mesh] = []
    folder = tmp_path_factory.mktemp("mesh")

    def start(text: str) -> Mesh:
        port, topology = free_port(), folder / f"mesh-{len(started)}.toml"
        topology.write_text(text.replace("{port}", str(port)))
        mesh = Mesh(topology, f"http://127.0.0.1:{port}", dict(os.environ))
        started.append(mesh)
        up = mesh.run("up", str(topology), "--detach", timeout_s=600.0)
        assert up.returncode == 0, f"{up.stdout}\n{up.stderr}"
        return mesh

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHSERVE_RUNTIME_DIR", str(folder / "run"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield start
        for mesh in started:
            mesh.run("down", str(mesh.topology), "--now")
