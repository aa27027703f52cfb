"""Supervisors come and go, and all processes are replaced, while clients stream: nobody notices."""

import os
import signal
import threading
import time
from random import Random

import httpx
import pytest

from mesh.addresses import runtime_dir
from mesh.supervisor.lock import holder
from mesh.supervisor.processes.pidfile import find_processes
from mesh.topology.parse import load
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.load import Load
from tests.end_to_end.tiny import DEADLINE_S, LONG, Client, body, engine, expected, simulated_mesh, start, until
from tests.models.tiny_llama import write_tiny_model
from tests.seeds import is_night, seeds

pytestmark = pytest.mark.timeout(300)

MESH = "[mesh]\ndrain_s = 30\n"


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    return start_mesh(MESH + simulated_mesh().replace("{model}", str(model)))


class Regular(threading.Thread):
    """A client that asks again and again on one connection, as long as the gateway lets it."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.num_answers = 0
        self.problem = ""
        self._url = f"{mesh.url}/v1/completions"
        self._is_over = threading.Event()

    def __enter__(self) -> "Regular":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()

    def run(self) -> None:
        with httpx.Client(timeout=DEADLINE_S) as client:
            while not self._is_over.wait(0.01) and not self.problem:
                try:
                    answer = client.post(self._url, json=body("again", 2))
                    self.problem = "" if answer.status_code == 200 else answer.text
                except httpx.HTTPError as error:
                    self.problem = repr(error)
                self.num_answers += 1


def pids(mesh: Mesh) -> dict[str, int]:
    return {record.process: record.pid for record in find_processes(runtime_dir(load(mesh.topology)))}


def kill_supervisor(mesh: Mesh) -> None:
    found = holder(runtime_dir(load(mesh.topology)), "local")
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    until(lambda: holder(runtime_dir(load(mesh.topology)), "local") is None)


@pytest.mark.skipif(not is_night(), reason="it takes long: at night only")
@pytest.mark.parametrize("seed", seeds(1))
def test_supervisors_are_killed_at_any_moment(mesh: Mesh, seed: int):
    random, before = Random(seed), pids(mesh)
    (question,) = expected(mesh, "what is lost?")
    with Load(mesh, {"tiny": 8.0}, num_tokens=20) as load_, Regular(mesh) as regular:
        stream = start(mesh, "what is lost?")
        for _ in range(3):
            time.sleep(random.uniform(0.0, 1.0))
            kill_supervisor(mesh)
            time.sleep(random.uniform(0.0, 0.5))
            up = mesh.run("up", str(mesh.topology), "--detach")
            assert (up.returncode, up.stderr) == (0, "")
        assert stream.end() == question
    load_.check()
    assert regular.problem == ""
    assert pids(mesh) == before


def test_an_adopted_process_that_dies_is_started_again(mesh: Mesh):
    kill_supervisor(mesh)
    assert mesh.run("up", str(mesh.topology), "--detach").returncode == 0
    victim = pids(mesh)["decode-0"]
    os.kill(victim, signal.SIGKILL)
    until(lambda: pids(mesh).get("decode-0", victim) != victim and engine(mesh, "decode-0")["state"] == "ready")
    assert engine(mesh, "decode-0")["last_exit"].startswith("ended")


def test_a_changed_file_replaces_one_process_after_the_other(mesh: Mesh):
    file, before = mesh.topology, pids(mesh)
    long = Client(mesh.url, body("a long one", LONG)).begin()
    with Load(mesh, {"tiny": 8.0}, num_tokens=20) as load_, Regular(mesh) as regular:
        file.write_text(file.read_text().replace("tpot_ms = 1000", "tpot_ms = 999"))
        up = mesh.run("up", str(file), "--detach")
        assert (up.returncode, up.stderr) == (0, "")
        assert [line for line in up.stdout.splitlines() if "will be" in line] == [
            f"{name}: will be replaced" for name in ("prefill", "decode-0", "decode-1", "gateway")
        ]
        regular.num_answers = 0
        until(lambda: regular.num_answers > 3 or bool(regular.problem))
    load_.check()
    assert regular.problem == ""
    text = long.leave()
    assert text == long.undisturbed()
    until(lambda: set(pids(mesh)) == {"gateway~", "prefill", "decode-0", "decode-1"})
    after = pids(mesh)
    assert not set(after.values()) & set(before.values())
    (row,) = mesh.status()["gateways"]
    assert (row["id"], row["state"], row["pid"]) == ("gateway", "ready", after["gateway~"])
    again = mesh.run("up", str(file))
    assert again.returncode == 2
    assert "is already running" in again.stderr
