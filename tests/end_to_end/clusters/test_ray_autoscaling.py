"""A mesh on a Ray cluster whose own autoscaler adds and removes nodes, in this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import psutil
import pytest
import ray

from mesh.cluster.ray.settings import RAY_SETTINGS
from mesh.process.fork_server import SHARED
from tests.end_to_end.clusters.ray_cluster import STORE_BYTES, running
from tests.end_to_end.conftest import Mesh, free_port
from tests.end_to_end.tiny import until
from tests.models.tiny_llama import write_tiny_model
from tests.seeds import is_night

PORT = 6379  # the only one at which nodes of the autoscaler's test provider look for a head
EMPTY = ("auth", "docker", "file_mounts")
NONE = (
    *("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"),
    *("head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files", "rsync_exclude", "rsync_filter"),
)
TOPOLOGY = f"""
[cluster]
on = "ray"
address = "127.0.0.1:{PORT}"
[hosts.near]
cpus = 1
[hosts.far]
count = 2
cpus = 1
[services.tiny]
model = "{{model}}"
[engines.engine]
host = "far"
count = 2
standby = 1
backend = "simulated"
profile = "h100-llama2-70b-tp4"
[gateways.gateway]
host = "near"
port = {{port}}
"""


def is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def scaling() -> dict[str, object]:
    """Up to four nodes of one processor, each until it has been idle for six seconds."""
    worker = {"resources": {"CPU": 1, "object_store_memory": STORE_BYTES}, "node_config": {}, "max_workers": 4}
    return {
        "cluster_name": "test",
        "max_workers": 4,
        "provider": {"type": "fake_multinode", "use_node_id_as_ip": True, "disable_node_updaters": True},
        "available_node_types": {
            "worker": {**worker, "min_workers": 0},
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        },
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.1,
        "file_mounts_sync_continuously": False,
        **{key: {} for key in EMPTY},
        **{key: [] for key in NONE},
    }


@pytest.fixture
def head() -> Iterator[None]:
    """The head of such a cluster, which starts and ends its nodes."""
    folder = Path(mkdtemp(prefix="ray", dir="/tmp"))  # paths of Unix sockets may have 107 bytes
    (folder / "scaling.json").write_text(json.dumps(scaling()))
    command = [
        str(Path(sys.executable).with_name("ray")),
        "start",
        "--head",
        "--block",
        f"--port={PORT}",
        "--num-cpus=0",
    ]
    command += [f"--object-store-memory={STORE_BYTES}", "--include-dashboard=false", f"--temp-dir={folder}"]
    command += [f"--autoscaling-config={folder / 'scaling.json'}"]
    fast = {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(command, env={**os.environ, **RAY_SETTINGS, **fast}, stdout=output, stderr=output)
    try:
        until(lambda: "runtime started" in (folder / "output").read_text())
        yield
    finally:
        ray.shutdown()  # type: ignore[no-untyped-call]
        process.send_signal(signal.SIGTERM)
        process.wait(60.0)
        end_nodes(folder)
        rmtree(folder, ignore_errors=True)


def end_nodes(folder: Path) -> None:
    """Nodes outlive the autoscaler that has started them."""
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or ()):
            for one in (*process.children(recursive=True), process):
                one.kill()


def num_nodes() -> int:
    return sum(node["Alive"] for node in ray.nodes()) - 1  # less the head


@pytest.mark.skipif(not is_night(), reason="it waits for long: at night only")
@pytest.mark.skipif(not is_free(PORT), reason=f"port {PORT} is taken")
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("head")
def test_ray_s_autoscaler_adds_nodes_for_hosts_and_removes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path / "run"))
    port, topology = free_port(), tmp_path / "scaled.toml"
    topology.write_text(TOPOLOGY.format(model=write_tiny_model(tmp_path / "model"), port=port))
    with running(Mesh(topology, f"http://127.0.0.1:{port}", {**os.environ, SHARED: ""})) as mesh:
        ray.init(f"127.0.0.1:{PORT}", log_to_driver=False)
        assert num_nodes() == 2
        started = mesh.run("start", str(topology), "engine-1")
        assert started.returncode == 0, started.stderr
        assert num_nodes() == 3
        stopped = mesh.run("stop", str(topology), "engine-1")
        assert stopped.returncode == 0, stopped.stderr
        until(lambda: num_nodes() == 2, 1.0)
