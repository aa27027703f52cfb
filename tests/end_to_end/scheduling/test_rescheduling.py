"""Engines of a live mesh that move requests by their own rules: clients see no gap, and the same tokens as ever."""

import pytest

from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import LONG, engine, simulated_mesh, start, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

RULES = """
[policy]
name = "disaggregated"
[rescheduling]
triggers = ["role"]
"""


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    return start_mesh(simulated_mesh("decode").replace("{model}", str(model)) + RULES)


def stream_some(mesh: Mesh) -> list[str]:
    clients = [start(mesh, f"question {number}") for number in range(3)]
    return [client.end() for client in clients]


def test_disaggregation_by_migration_streams_what_the_built_in_path_streams(mesh: Mesh):
    handed_over = stream_some(mesh)
    assert engine(mesh, "prefill")["migrations"] == 0
    switched = mesh.run("policy", str(mesh.topology), "disaggregated", "after_prefill=migrate")
    assert (switched.returncode, switched.stderr) == (0, "")
    migrated = stream_some(mesh)
    assert engine(mesh, "prefill")["migrations"] == len(migrated)
    assert migrated == handed_over


def test_decodes_leave_an_engine_whose_role_becomes_prefill(mesh: Mesh):
    assert mesh.run("policy", str(mesh.topology), "disaggregated").returncode == 0
    client = start(mesh, "leave in time", LONG)
    assert mesh.run("role", str(mesh.topology), client.decode, "prefill").returncode == 0
    until(lambda: engine(mesh, client.decode)["migrations"] == 1)
    assert client.leave() == client.undisturbed()
    assert mesh.run("role", str(mesh.topology), client.decode, "decode").returncode == 0
