"""A mesh whose hosts Ray holds, on a cluster of several nodes in this machine, of which one is lost."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

from bench.models.tiny_llama import write_tiny_model
from tests.end_to_end.conftest import Mesh, free_port
from tests.end_to_end.tiny import DEADLINE_S, chunks_of, until

pytestmark = pytest.mark.timeout(300)

NUM_STREAMS = 16
NUM_TOKENS = 400
STORE_BYTES = 80 * 2**20
TOPOLOGY = """
[cluster]
on = "ray"
address = "{address}"
[hosts.front]
cpus = 1
[hosts.worker]
count = 2
cpus = 2
[services.tiny]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[engines.prefill]
host = "front"
role = "prefill"
kv_memory = "4MiB"
[engines.decode]
host = "worker"
count = 2
role = "multiplex"
kv_memory = "4MiB"
[gateways.gateway]
host = "front"
address = "0.0.0.0"
port = {port}
[access]
open = true
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head on which nothing runs, and four nodes for three hosts: one is spare."""
    head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(4):
            cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
        yield cluster
    finally:
        ray.shutdown()  # type: ignore[no-untyped-call]
        cluster.shutdown()


@pytest.fixture(scope="module")
def mesh(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    folder, port = tmp_path_factory.mktemp("ray"), free_port()
    model, topology = write_tiny_model(tmp_path_factory.mktemp("model")), folder / "mesh.toml"
    topology.write_text(TOPOLOGY.format(address=cluster.address, model=model, port=port))
    env = {**os.environ, "MESHSERVE_RUNTIME_DIR": str(folder / "run"), "PYTHONPATH": str(Path(__file__).parents[2])}
    mesh = Mesh(topology, f"http://127.0.0.1:{port}", env)
    up = mesh.run("up", str(topology), "--detach")
    assert up.returncode == 0, f"{up.stdout}\n{up.stderr}"
    yield mesh
    down = mesh.run("down", str(topology))
    assert down.returncode == 0, down.stderr
    assert processes_of(mesh) == []


def processes_of(mesh: Mesh) -> list[psutil.Process]:
    """All processes of the mesh on this machine."""
    found = [one for one in psutil.process_iter(["cmdline"]) if str(mesh.topology) in (one.info["cmdline"] or [])]
    return [one for one in found if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def node_of(cluster: Any, process: psutil.Process) -> Any:
    """The node of the cluster on which a process of the mesh runs."""
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in cluster.worker_nodes}
    return next(raylets[parent.pid] for parent in process.parents() if parent.pid in raylets)


def lose(cluster: Any, node: Any) -> None:
    """As if the machine lost its power: no process of it does anything any more."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    tree = [raylet, *raylet.children(recursive=True)]
    for process in tree:
        process.send_signal(signal.SIGSTOP)
    for process in tree:
        process.kill()
    cluster.worker_nodes.discard(node)


def engine_process(mesh: Mesh, name: str) -> psutil.Process:
    return next(one for one in processes_of(mesh) if one.cmdline()[-1] == name)


def stream(mesh: Mesh, prompt: str, moments: list[float], begun: Callable[[], None]) -> str:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True}
    text = ""
    url = f"{mesh.url}/v1/completions"
    with httpx.stream("POST", url, json={**body, "stream": True}, timeout=DEADLINE_S) as response:
        assert response.status_code == 200
        for chunk in chunks_of(response):
            assert "error" not in chunk, chunk
            moments.append(time.monotonic())
            text += "".join(choice["text"] for choice in chunk["choices"])  # type: ignore[attr-defined]
            begun()
    return text


def test_a_mesh_on_ray_answers_and_its_blocks_cross_between_hosts(mesh: Mesh):
    body = {"model": "tiny", "prompt": "Blocks cross. " * 20, "max_tokens": 8, "temperature": 0}
    response = httpx.post(f"{mesh.url}/v1/completions", json=body, timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    assert response.headers["x-meshserve-prefill"] == "prefill"
    assert response.headers["x-meshserve-decode"].startswith("decode-")


def test_commands_find_the_mesh_through_ray(mesh: Mesh):
    status = mesh.run("status", str(mesh.topology), "--json")
    assert status.returncode == 0, status.stderr
    assert '"decode-1"' in status.stdout
    drained = mesh.run("drain", str(mesh.topology), "decode-1")
    assert drained.returncode == 0, drained.stderr
    undone = mesh.run("drain", str(mesh.topology), "decode-1", "--undo")
    assert undone.returncode == 0, undone.stderr


def test_the_loss_of_a_node_in_mid_stream_costs_no_token(cluster: Any, mesh: Mesh):
    prompts = [f"Stream {number} goes on. " for number in range(NUM_STREAMS)]
    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        expected = list(pool.map(lambda prompt: stream(mesh, prompt, [], lambda: None), prompts))
        moments: list[list[float]] = [[] for _ in prompts]
        begun = [threading.Event() for _ in prompts]
        answers = [
            pool.submit(stream, mesh, *one) for one in zip(prompts, moments, (e.set for e in begun), strict=True)
        ]
        assert all(event.wait(DEADLINE_S) for event in begun)
        victim = engine_process(mesh, "decode-0")
        lost = node_of(cluster, victim)
        lose(cluster, lost)
        assert [answer.result(DEADLINE_S) for answer in answers] == expected
    gaps = [later - sooner for times in moments for sooner, later in pairwise(times)]
    assert max(gaps) < 10.0, "the lease is 1 s"
    until(lambda: all(row["state"] == "ready" for row in mesh.status()["engines"]))
    assert node_of(cluster, engine_process(mesh, "decode-0")) is not lost
    assert [one.cmdline()[-1] for one in processes_of(mesh)].count("decode-0") == 1
