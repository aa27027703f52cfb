import sys
from pathlib import Path

import pytest

from mesh.supervisor.processes.command import ENGINE, GATEWAY, PLACEMENT, ChildCommand
from mesh.topology.parse import load

CHILD = Path(__file__).parents[1] / "child.py"


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
        argv = (sys.executable, str(CHILD), mode, "--topology", str(topology.path), "--id", process)
        kind = {"g": GATEWAY, "placement": PLACEMENT}.get(process, ENGINE)
        return ChildCommand(process, kind, argv)

    return make
