"""`mesh migrate`, `mesh drain` and `mesh role` on a live mesh: clients see no gap, and the same tokens as ever."""

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, LONG, body, engine, simulated_mesh, start, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    return start_mesh(simulated_mesh().replace("{model}", str(model)))


def other(name: str) -> str:
    return {"decode-0": "decode-1", "decode-1": "decode-0"}[name]


def test_a_stream_that_moves_is_the_stream_that_stays(mesh: Mesh):
    client = start(mesh, "move me", LONG)
    to = other(client.decode)
    moved = mesh.run("migrate", str(mesh.topology), client.id, to)
    assert (moved.returncode, moved.stderr) == (0, "")
    assert moved.stdout.endswith(f"decodes on {to} (from {client.decode})\n")
    assert engine(mesh, client.decode)["migrations"] == 1
    assert client.leave() == client.undisturbed()
    story = mesh.run("explain", str(mesh.topology), client.id).stdout
    assert f"{to} has it from here on" in story
    assert "interrupted" not in story


def test_what_has_ended_moves_nowhere(mesh: Mesh):
    answer = httpx.post(f"{mesh.url}/v1/completions", json=body("short", 4), timeout=DEADLINE_S)
    late = mesh.run("migrate", str(mesh.topology), answer.json()["id"], "decode-0")
    assert (late.returncode, late.stdout, late.stderr.count("\n")) == (1, "", 1)
    assert "has ended (length)" in late.stderr


def test_a_drained_engine_is_empty_before_its_answers_end(mesh: Mesh):
    clients = [start(mesh, f"drain {number}", LONG) for number in range(3)]
    victim = clients[0].decode
    drained = mesh.run("drain", str(mesh.topology), victim)
    assert (drained.returncode, drained.stderr) == (0, "")
    assert drained.stdout.endswith(f"{victim} is empty and takes nothing new (--undo: it does)\n")
    assert all(client.is_alive() for client in clients)
    assert engine(mesh, victim)["state"] == "draining"
    texts = [client.leave() for client in clients]
    assert texts == [client.undisturbed() for client in clients]
    undone = mesh.run("drain", str(mesh.topology), victim, "--undo")
    assert (undone.returncode, undone.stdout) == (0, f"{victim} serves again\n")
    until(lambda: engine(mesh, victim)["state"] == "ready")


def test_all_engines_of_a_host_are_drained_at_once(mesh: Mesh):
    drained = mesh.run("drain", str(mesh.topology), "--host", "local")
    assert (drained.returncode, drained.stderr) == (0, "")
    for name in ("prefill", "decode-0", "decode-1"):
        assert f"{name} is empty and takes nothing new" in drained.stdout
    undone = mesh.run("drain", str(mesh.topology), "--host", "local", "--undo")
    assert (undone.returncode, undone.stdout.count("serves again")) == (0, 3)
    until(lambda: all(engine(mesh, name)["state"] == "ready" for name in ("prefill", "decode-0", "decode-1")))


def test_roles_change_while_the_mesh_runs(mesh: Mesh):
    changed = mesh.run("role", str(mesh.topology), "decode-1", "decode")
    assert (changed.returncode, changed.stderr) == (0, "")
    assert engine(mesh, "decode-1")["role"] == "decode"
    assert mesh.run("role", str(mesh.topology), "decode-1", "multiplex").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["migrate", "{file}", "cmpl-nobody", "decode-0"], 1, "knows no request"),
        (["migrate", "{file}", "r", "decode-7"], 2, "no engine 'decode-7'; did you mean 'decode-1'?"),
        (["migrate", "{file}", "r"], 2, "a request and an engine are needed"),
        (["role", "{file}", "decode-0", "boss"], 2, "no role 'boss'; use decode, multiplex or prefill"),
        (["drain", "{file}"], 2, "one engine is needed"),
        (["drain", "{file}", "decode-0", "--host", "local"], 2, "no engine but --host is needed"),
        (["drain", "{file}", "gateway"], 2, "no engine 'gateway'"),
    ],
)
def test_a_mistake_is_one_line(mesh: Mesh, words: list[str], code: int, complaint: str):
    wrong = mesh.run(*(word.replace("{file}", str(mesh.topology)) for word in words))
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (code, "", 1)
    assert complaint in wrong.stderr
