"""The `mesh` command, mostly in a process of its own, over processes that do nothing (tests/mesh/child.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import engines
import router
from bench.live.ports import free_port
from engines import models
from mesh.process.fork_server import SHARED
from tests.commands import run_here

CHILD = Path(__file__).parents[1] / "child.py"
PROCESS = f"""\
import os, runpy, sys
sys.argv.insert(1, os.environ.get("CHILD_MODE", "ready"))
runpy.run_path({str(CHILD)!r}, run_name="__main__")
"""
PREPARE = """\
import sys
if any("missing" in reference for reference in sys.argv):
    sys.exit("no such model: missing")
print("prepared", *sys.argv[2:], flush=True)
"""
CHECK = """\
import os, signal
from contextlib import suppress
from mesh.errors import UserError

def check(topology):
    if topology.path.name == "interrupted.toml":
        with suppress(KeyboardInterrupt):  # as code that ignores exceptions does
            os.kill(os.getpid(), signal.SIGTERM)
    if topology.path.name == "unknown.toml":
        raise UserError("engines.decode: no such profile")
    return ["services.tiny: promises much"] if topology.path.name == "hasty.toml" else []
"""
ROUTER_CHECK = """\
def check(topology):
    return []
"""


class Mesh:
    """Runs the command in a folder with a topology ``t.toml``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = folder / "run/t"
        path = os.pathsep.join(filter(None, [str(folder / "fakes"), os.environ.get("PYTHONPATH")]))
        self.env = {**os.environ, "MESHSERVE_RUNTIME_DIR": str(folder / "run"), "PYTHONPATH": path}
        self.env.pop(SHARED, None)  # it has not imported the fakes
        self.port = free_port()
        self.write()

    def write(self, model: str = "pypi:a==1/b.gguf") -> None:
        (self.folder / "t.toml").write_text(
            f'[mesh]\nheartbeat_ms = 50\ndrain_s = 20\n[services.tiny]\nmodel = "{model}"\n'
            f'[engines.prefill]\nrole = "prefill"\n[engines.decode]\n[gateways.gateway]\nport = {self.port}\n'
        )

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "mesh.cli", *arguments]

    def __call__(self, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*arguments), cwd=self.folder, env={**self.env, **env}, capture_output=True, text=True,
            timeout=100, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def here(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command that starts nothing in this process, without the fakes."""
        runtime = {"MESHSERVE_RUNTIME_DIR": self.env["MESHSERVE_RUNTIME_DIR"]}
        return run_here(*arguments, folder=self.folder, env=runtime)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.command(*arguments), cwd=self.folder, env=self.env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip


@pytest.fixture
def mesh(tmp_path):
    for package, text in [(engines, PROCESS), (router, PROCESS), (models, PREPARE)]:
        fake = tmp_path / "fakes" / package.__name__.replace(".", "/")
        fake.mkdir(parents=True, exist_ok=True)
        # What is not faked is the product's.
        (fake / "__init__.py").write_text(f"__path__ += {list(package.__path__)}\n")
        (fake / "__main__.py").write_text(text)
    (tmp_path / "fakes/engines/checks.py").write_text(CHECK)
    (tmp_path / "fakes/router/checks.py").write_text(ROUTER_CHECK)
    mesh = Mesh(tmp_path)
    yield mesh
    mesh.here("down", "t.toml", "--now")
