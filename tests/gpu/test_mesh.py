"""A whole mesh whose engines share one GPU: prompts are handed over, requests move, engines die, no token is lost."""

import os
import signal
from collections.abc import Callable

import pytest

from tests.end_to_end.conftest import Mesh, StartMesh, start_mesh
from tests.end_to_end.tiny import LONG, engine, expected, is_at_rest, start, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(240)
__all__ = ["start_mesh"]

TOPOLOGY = """
[services.tiny]
model = "{model}"
dtype = "float32"
ttft_ms = 30000
tpot_ms = 1000
[engines.prefill]
role = "prefill"
device = "{device}"
kv_memory = "16MiB"
[engines.decode]
count = 2
role = "decode"
device = "{device}"
kv_memory = "16MiB"
[gateways.gateway]
port = {port}
[transfer]
checksum = true
"""
PROMPTS = [f"{word} is what this prompt is about, and not much more. " for word in ("rain", "iron", "a tree", "wool")]


@pytest.fixture(scope="module")
def mesh_on(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Mesh]:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    return lambda device: start_mesh(TOPOLOGY.replace("{model}", str(model)).replace("{device}", device))


@pytest.fixture(scope="module")
def mesh(mesh_on: Callable[[str], Mesh]) -> Mesh:
    return mesh_on("cuda:0")


def test_answers_are_those_of_processors(mesh: Mesh, mesh_on: Callable[[str], Mesh]):
    assert expected(mesh, *PROMPTS) == expected(mesh_on("cpu"), *PROMPTS)


def test_a_request_moves_between_gpu_memories(mesh: Mesh):
    client = start(mesh, "move me", LONG)
    to = {"decode-0": "decode-1", "decode-1": "decode-0"}[client.decode]
    moved = mesh.run("migrate", str(mesh.topology), client.id, to)
    assert (moved.returncode, moved.stderr) == (0, "")
    assert engine(mesh, client.decode)["migrations"] == 1
    assert client.leave() == client.undisturbed()


@pytest.mark.parametrize("victim", ["decode", "prefill"])
def test_an_engine_killed_in_mid_stream_costs_no_token(mesh: Mesh, victim: str):
    until(lambda: is_at_rest(mesh))
    client = start(mesh, f"the engine that dies is {victim}")
    rows = {row["id"]: int(str(row["pid"])) for row in mesh.status()["engines"]}
    os.kill(rows[client.headers[f"x-meshserve-{victim}"]], signal.SIGKILL)
    text = client.end()
    until(lambda: is_at_rest(mesh))
    assert [text] == expected(mesh, f"the engine that dies is {victim}")
