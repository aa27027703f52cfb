"""Ray clusters of several nodes in this machine, meshes on them, and streams from those."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

import httpx
import psutil
import ray
from ray.cluster_utils import Cluster

from mesh.cluster.ray.settings import RAY_SETTINGS
from tests.end_to_end.conftest import Mesh
from tests.end_to_end.tiny import DEADLINE_S, chunks_of
from tests.tools.ended import has_ended

STORE_BYTES = 80 * 2**20
NUM_STREAMS = 16
NUM_TOKENS = 400


@contextmanager
def cluster_of(num_nodes: int, store: Path) -> Iterator[Any]:
    """A head on which nothing runs, and some nodes of two processors. The head keeps on disk what it knows."""
    before = {name: os.environ.get(name) for name in RAY_SETTINGS}
    os.environ.update(RAY_SETTINGS)
    settings = {"gcs_storage": "rocksdb", "gcs_storage_path": str(store)}
    node = {"object_store_memory": STORE_BYTES, "include_dashboard": False, "include_log_monitor": False}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 0, "_system_config": settings})
    session = cluster.head_node.get_session_dir_path()
    try:
        for _ in range(num_nodes):
            cluster.add_node(num_cpus=2, **node)
        yield cluster
    finally:
        ray.shutdown()  # type: ignore[no-untyped-call]
        cluster.shutdown()
        rmtree(session, ignore_errors=True)  # logs of its last processes may still come
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def running(mesh: Mesh) -> Iterator[Mesh]:
    """A mesh as long as this lasts. Nothing of it is left."""
    up = mesh.run("up", str(mesh.topology), "--detach")
    assert up.returncode == 0, f"{up.stdout}\n{up.stderr}"
    try:
        yield mesh
    finally:
        down = mesh.run("down", str(mesh.topology))
    assert down.returncode == 0, down.stderr
    assert processes_of(mesh) == []


def processes_of(mesh: Mesh) -> list[psutil.Process]:
    """All processes of the mesh on this machine."""
    found = [one for one in psutil.process_iter(["cmdline"]) if str(mesh.topology) in (one.info["cmdline"] or [])]
    return [one for one in found if not has_ended(one)]


def process_of(mesh: Mesh, name: str) -> psutil.Process:
    """The process of an engine or a gateway."""
    return next(one for one in processes_of(mesh) if one.cmdline()[-1] == name)


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


@dataclass
class Streams:
    """Greedy answers to some prompts, all at once."""

    texts: list[str] = field(default_factory=list)


@contextmanager
def streams(mesh: Mesh, num_tokens: int = NUM_TOKENS) -> Iterator[Streams]:
    """Begin streams, and leave once they have ended. What is inside happens once all have begun."""
    found, prompts = Streams(), [f"Stream {number} goes on. " for number in range(NUM_STREAMS)]
    begun = [threading.Event() for _ in prompts]
    with ThreadPoolExecutor(NUM_STREAMS) as pool:
        answers = [
            pool.submit(_stream, mesh, prompt, num_tokens, event) for prompt, event in zip(prompts, begun, strict=True)
        ]
        assert all(event.wait(DEADLINE_S) for event in begun)
        yield found
        found.texts = [answer.result(DEADLINE_S) for answer in answers]


def _stream(mesh: Mesh, prompt: str, num_tokens: int, begun: threading.Event) -> str:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    texts: list[str] = []
    try:
        with httpx.stream(
            "POST", f"{mesh.url}/v1/completions", json={**body, "stream": True}, timeout=DEADLINE_S
        ) as answer:
            assert answer.status_code == 200, answer.read()
            for chunk in chunks_of(answer):
                assert "error" not in chunk, chunk
                choices: Sequence[Any] = chunk["choices"]  # type: ignore[assignment]
                texts += [choice["text"] for choice in choices]
                begun.set()
    finally:
        begun.set()
    return "".join(texts)
