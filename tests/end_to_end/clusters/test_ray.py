"""A mesh whose hosts Ray holds: nodes and Ray's head are lost, hosts come and go, and no stream notices."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mesh.process.fork_server import SHARED
from mesh.wire.status import DecodeCost
from tests.end_to_end.clusters.ray_cluster import cluster_of, lose, node_of, process_of, processes_of, running, streams
from tests.end_to_end.conftest import Mesh, free_port
from tests.end_to_end.load import Load
from tests.end_to_end.tiny import DEADLINE_S, until, write_slow_profile
from tests.models.tiny_llama import write_tiny_model
from tests.seeds import is_night

pytestmark = pytest.mark.timeout(300)

SERVING = """
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
SCALED = """
[cluster]
on = "ray"
address = "{address}"
[hosts.near]
cpus = 0.5
[hosts.far]
count = 3
cpus = 0.5
[services.tiny]
model = "{model}"
ttft_ms = 5000
tpot_ms = 100
[engines.engine]
host = "far"
count = 3
standby = 2
backend = "simulated"
profile = "{profile}"
[placement]
host = "near"
mode = "off"
[scaling]
down_after_s = 4
[gateways.gateway]
host = "near"
port = {port}
"""

Start = Callable[[str], Mesh]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Four nodes for three hosts: one is spare. They have another runtime folder than the commands here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path_factory.mktemp("hosts")))
        with cluster_of(4, tmp_path_factory.mktemp("head")) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def write_mesh(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Writes topologies."""
    folder, model = tmp_path_factory.mktemp("ray"), write_tiny_model(tmp_path_factory.mktemp("model"))
    profile = write_slow_profile(folder, DecodeCost(fixed_s=0.02, per_request_s=0.01))

    def write(text: str) -> Mesh:
        port = free_port()
        topology = folder / f"mesh-{port}.toml"
        topology.write_text(text.format(address=cluster.address, model=model, profile=profile, port=port))
        return Mesh(topology, f"http://127.0.0.1:{port}", {**os.environ, SHARED: ""})

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHSERVE_RUNTIME_DIR", str(folder / "run"))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        yield write


@pytest.fixture(scope="module")
def mesh(write_mesh: Start) -> Iterator[Mesh]:
    with running(write_mesh(SERVING)) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def expected(mesh: Mesh) -> list[str]:
    """The texts of streams that nothing disturbs."""
    with streams(mesh) as calm:
        pass
    return calm.texts


def is_whole(mesh: Mesh) -> bool:
    return all(row["state"] == "ready" for row in mesh.status()["engines"])


def test_a_mesh_on_ray_answers_and_its_blocks_cross_between_hosts(mesh: Mesh):
    body = {"model": "tiny", "prompt": "Blocks cross. " * 20, "max_tokens": 8, "temperature": 0}
    response = httpx.post(f"{mesh.url}/v1/completions", json=body, timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    assert response.headers["x-meshserve-prefill"] == "prefill"
    assert response.headers["x-meshserve-decode"].startswith("decode-")


def test_commands_find_the_mesh_through_ray(mesh: Mesh):
    status = mesh.run("status", str(mesh.topology))
    assert status.returncode == 0, status.stderr
    assert "worker-1  ready" in status.stdout
    logs = mesh.run("logs", "decode-1", "--topology", str(mesh.topology))
    assert "decode-1     info     ready role=multiplex" in logs.stdout
    drained = mesh.run("drain", str(mesh.topology), "decode-1")
    assert drained.returncode == 0, drained.stderr
    undone = mesh.run("drain", str(mesh.topology), "decode-1", "--undo")
    assert undone.returncode == 0, undone.stderr


def test_the_loss_of_a_node_in_mid_stream_costs_no_token(cluster: Any, mesh: Mesh, expected: list[str]):
    with streams(mesh) as disturbed:
        lost = node_of(cluster, process_of(mesh, "decode-0"))
        lose(cluster, lost)
    assert disturbed.texts == expected
    until(lambda: is_whole(mesh))
    assert node_of(cluster, process_of(mesh, "decode-0")) is not lost
    assert [one.cmdline()[-1] for one in processes_of(mesh)].count("decode-0") == 1


@pytest.mark.skipif(not is_night(), reason="it waits for long: at night only")
def test_the_mesh_serves_without_the_head_of_ray_and_is_there_when_it_is_back(
    cluster: Any, mesh: Mesh, expected: list[str]
):
    before = {name: process_of(mesh, name).pid for name in ("prefill", "decode-0", "decode-1")}
    with streams(mesh) as disturbed:
        cluster.head_node.kill_gcs_server()
        status = mesh.run("status", str(mesh.topology))
        assert "the mesh may go on without Ray" in status.stderr
        assert "worker-1  unknown" in status.stdout
    assert disturbed.texts == expected
    cluster.head_node.start_gcs_server()
    until(lambda: "worker-1  ready" in mesh.run("status", str(mesh.topology)).stdout)
    assert {name: process_of(mesh, name).pid for name in before} == before


@pytest.mark.skipif(not is_night(), reason="it waits for long: at night only")
def test_a_changed_topology_replaces_engines_host_by_host(mesh: Mesh, expected: list[str]):
    before = {name: process_of(mesh, name).pid for name in ("prefill", "decode-0", "decode-1")}
    mesh.topology.write_text(mesh.topology.read_text().replace('"4MiB"', '"5MiB"'))
    with streams(mesh) as disturbed:
        changed = mesh.run("up", str(mesh.topology), "--detach")
        assert changed.returncode == 0, changed.stderr
    assert disturbed.texts == expected
    assert not {process_of(mesh, name).pid for name in before} & set(before.values())
    until(lambda: is_whole(mesh))


def held_hosts(name: str) -> set[str]:
    """The hosts of a mesh for which Ray has reserved room, or is to."""
    from ray.util import placement_group_table

    table = placement_group_table().values()  # type: ignore[no-untyped-call]
    groups = [group["name"] for group in table if group["state"] != "REMOVED"]
    return {group.partition("/")[2] for group in groups if group.startswith(f"meshserve-{name}/")}


@pytest.mark.skipif(not is_night(), reason="it waits for long: at night only")
def test_hosts_are_held_while_the_load_needs_them_and_given_back(write_mesh: Start):
    """An engine holds eight requests at 100 ms a token: 4 requests a second of 40 tokens need three."""
    with running(write_mesh(SCALED)) as mesh:
        assert [row["state"] for row in mesh.status()["engines"]] == ["ready", "standby", "standby"]
        name = mesh.topology.stem
        assert held_hosts(name) == {"near", "far-0"}
        with Load(mesh, {"tiny": 4.0}, 40) as load:
            until(lambda: held_hosts(name) == {"near", "far-0", "far-1", "far-2"}, 1.0)
            until(lambda: is_whole(mesh))
            load.rates["tiny"] = 0.5
            until(lambda: len(held_hosts(name)) == 2, 1.0)
        load.check()
        resting = [str(row["id"]) for row in mesh.status()["engines"] if row["state"] == "standby"][-1]
        started = mesh.run("start", str(mesh.topology), resting)
        assert (started.returncode, started.stdout.splitlines()[-1]) == (0, f"{resting} serves"), started.stderr
