"""`mesh bench` against a mesh of simulated engines: what is asked for arrives, and Ctrl-C tells what came so far."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh, free_port
from tests.end_to_end.tiny import DEADLINE_S, GATEWAY, SERVICE, simulated_mesh, until
from tests.models.tiny_llama import write_tiny_model
from tests.seeds import is_night

pytestmark = pytest.mark.timeout(300)
ENGINE = """
[engines.one]
role = "multiplex"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
"""
FINISHED = "vllm:e2e_request_latency_seconds_count"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, model: Path) -> Mesh:
    return start_mesh(simulated_mesh().replace("{model}", str(model)))


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_lengths_are_exact_and_counted_by_the_server(mesh: Mesh, tmp_path: Path, api: str):
    load = ("--rate", "40", "--requests", "16", "--input-tokens", "40:90", "--output-tokens", "4:8", "--api", api)
    rest = ("--goodput", "ttft:30000", "tpot:1000", "--workers", "2", "--fail-under", "1", "--out", str(tmp_path))
    done = mesh.run("bench", "--url", mesh.url, *load, *rest, "--quiet")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["completed"], result["failed"], result["counted_by_server"]) == (16, 0, 16)
    assert (result["slo_attainment"], result["workers"]) == (1.0, 2)
    requests = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    for request in requests:
        assert request["input_tokens"] == request["asked_input_tokens"]
        assert request["output_tokens"] == request["asked_output_tokens"]
        assert set(request["headers"]) >= {"prefill", "decode", "rule"}
    assert len({request["asked_input_tokens"] for request in requests}) > 1


def test_interrupting_tells_what_was_measured(mesh: Mesh, tmp_path: Path):
    out, before = tmp_path / "out", num_answered(mesh)
    command = [sys.executable, "-m", "mesh.cli", "bench", "--url", mesh.url, "--rate", "20", "--duration", "300"]
    process = subprocess.Popen(
        [*command, "--output-tokens", "4", "--out", str(out), "--quiet"],
        env=mesh.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: num_answered(mesh) >= before + 10 or process.poll() is not None)
    os.kill(process.pid, signal.SIGINT)
    printed, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "Successful requests:" in printed
    assert "interrupted" in errors
    result = json.loads((out / "result.json").read_text())
    assert 0 < result["completed"] < 20 * 300
    assert result["failed"] == 0


def num_answered(mesh: Mesh) -> float:
    metrics = httpx.get(f"{mesh.admin_url}/metrics", timeout=DEADLINE_S).text
    counts = (line.rpartition(" ")[2] for line in metrics.splitlines() if line.startswith(FINISHED))
    return sum(map(float, counts))


@pytest.mark.skipif(not is_night(), reason="it takes long: at night only")
def test_a_sweep_starts_and_stops_a_mesh_itself(mesh: Mesh, model: Path, tmp_path: Path):
    topology, port = tmp_path / "own.toml", free_port()
    text = SERVICE + ENGINE + GATEWAY
    topology.write_text(text.replace("{model}", str(model)).replace("{port}", str(port)))
    load = ("--requests", "40", "--least-s", "0.1", "--output-tokens", "2", "--first-rate", "50", "--most-rates", "1")
    done = mesh.run("bench", "sweep", "--topology", str(topology), *load, "--quiet", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "sweep.json").read_text())["runs"]["own"]
    assert [point["requests"] for point in found["points"]] == [40]
    assert found["attainment_goal"] == 0.9
    gone = mesh.run("bench", "--url", f"http://127.0.0.1:{port}")
    assert gone.returncode == 2
    assert "no server answers" in gone.stderr
