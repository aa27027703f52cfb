"""Two real hosts that find each other by the environment of a job, as `srun mesh up --host auto` starts them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from bench.live.ports import free_ports
from mesh.sockets.curve import make_key_file
from tests.end_to_end.tiny import DEADLINE_S, body
from tests.models.tiny_llama import write_tiny_model
from tests.tools.ports import free_range

NODES = "127.0.0.[2-3]"
TOPOLOGY = """\
[mesh]
curve_key = "mesh.key"
[cluster]
on = "slurm"
[services.tiny]
model = "{model}"
[hosts.front]
base_port = {front}
[hosts.worker]
base_port = {worker}
[gateways.gateway]
host = "front"
port = {port}
[engines.main]
host = "worker"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def port() -> int:
    [port] = free_ports(1)
    return port


@pytest.fixture
def run(tmp_path: Path, port: int) -> Iterator[Run]:
    """Run `mesh` in a task of a job of two nodes, both of which are addresses of this machine."""
    model, front = write_tiny_model(tmp_path / "model"), free_range(24)
    file = tmp_path / "job.toml"
    file.write_text(TOPOLOGY.format(model=model, front=front, worker=front + 12, port=port))
    make_key_file(tmp_path / "mesh.key")
    job = {**os.environ, "MESHSERVE_RUNTIME_DIR": str(tmp_path / "run"), "SLURM_JOB_NODELIST": NODES}

    def task(action: str, *options: str, number: int = 0) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "mesh.cli", action, str(file), *options]
        environment = {**job, "SLURM_PROCID": str(number)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)

    yield task
    task("down", "--now")


def test_tasks_of_a_job_are_one_mesh(run: Run, port: int):
    for number in (0, 1):
        up = run("up", "--host", "auto", "--detach", number=number)
        assert (up.returncode, up.stderr) == (0, "")
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body("of a job", 4), timeout=DEADLINE_S)
    assert answer.status_code == 200
    drained = run("drain", "--host", "worker")
    assert (drained.returncode, drained.stdout.splitlines()[-1]) == (
        0,
        "main is empty and takes nothing new (--undo: it does)",
    )
    down = run("down")
    assert (down.returncode, down.stderr) == (0, "")
