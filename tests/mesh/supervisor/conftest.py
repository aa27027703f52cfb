import os
import sys

import pytest

from mesh.process.fork_server import SHARED
from mesh.supervisor.processes.command import ENGINE, GATEWAY, PLACEMENT, ChildCommand
from mesh.topology.parse import load


@pytest.fixture
def topology(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path / "run"))
    path = tmp_path / "t.toml"
    path.write_text(
        '[mesh]\nheartbeat_ms = 50\ndrain_s = 20\n[services.s]\nmodel = "m"\n[engines.e]\n[engines.f]\n'
        "[gateways.g]\n[placement]\n"
    )
    return load(path)


@pytest.fixture
def command(topology):
    def make(process: str, mode: str) -> ChildCommand:
        start = (sys.executable, "-m", "tests.mesh.child")
        argv = (*start, mode, "--topology", str(topology.path), "--id", process)
        kind = {"g": GATEWAY, "placement": PLACEMENT}.get(process, ENGINE)
        return ChildCommand(process, kind, argv, server=start if os.environ.get(SHARED) else ())

    return make
