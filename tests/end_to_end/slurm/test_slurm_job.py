"""A job on two nodes of a real Slurm, in network namespaces. `apt-get install slurm-wlm` brings what it needs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mesh.sockets.curve import make_key_file
from tests.models.tiny_llama import write_tiny_model

HERE = Path(__file__).parent
NEEDED = ("slurmctld", "slurmd", "slurmstepd", "munged", "sbatch", "srun", "unshare", "ip", "curl")
PLUGINS = os.environ.get("SLURM_PLUGINS", "/usr/lib/x86_64-linux-gnu/slurm-wlm")
PRIVATE = ("unshare", "-mnu", "--propagation", "private")  # namespaces
TOPOLOGY = """\
[mesh]
curve_key = "mesh.key"
[cluster]
on = "slurm"
[services.tiny]
model = "{model}"
[hosts.front]
[hosts.worker]
[gateways.gateway]
host = "front"
[engines.main]
host = "worker"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
"""


def why_not() -> str:
    """Why Slurm cannot run here; empty if it can."""
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        return f"{', '.join(missing)} is not installed"
    allowed = os.getuid() == 0 and subprocess.run([*PRIVATE, "true"], check=False, capture_output=True).returncode == 0
    return "" if allowed else "namespaces are not allowed here"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A topology, its key, and a command for `mesh` that nodes can start."""
    model = write_tiny_model(tmp_path / "model")
    (tmp_path / "job.toml").write_text(TOPOLOGY.format(model=model))
    make_key_file(tmp_path / "mesh.key")
    command = tmp_path / "mesh"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m mesh.cli "$@"\n')
    command.chmod(0o755)
    return tmp_path


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.timeout(200)
def test_a_job_of_two_nodes_is_a_mesh_that_answers_and_drains(folder: Path):
    mesh = str(folder / "mesh")
    render = [mesh, "deploy", "render", "job.toml", "--to", "slurm", "--mesh", mesh, "--time", "10:00", "--out", "job"]
    subprocess.run(render, cwd=folder, check=True, capture_output=True)
    environment = {**os.environ, "SLURM_PLUGINS": PLUGINS, "MESHSERVE_RUNTIME_DIR": str(folder / "run")}
    job = ["bash", str(HERE / "job.sh"), str(folder), mesh]
    cluster = [*PRIVATE, "bash", str(HERE / "cluster.sh"), str(folder), *job]
    done = subprocess.run(cluster, env=environment, capture_output=True, text=True, check=False, timeout=180)
    log = (folder / "job.log").read_text() if (folder / "job.log").exists() else ""
    assert "main is empty and takes nothing new" in done.stdout, f"{done.stdout}\n{done.stderr}\n{log}"
    assert "JobState=COMPLETED" in done.stdout
    assert json.loads((folder / "answer.json").read_text())["usage"]["completion_tokens"] == 4
