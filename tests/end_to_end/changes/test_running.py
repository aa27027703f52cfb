"""`mesh start` and `mesh stop` on a live mesh: engines come and go, and no client notices."""

import pytest

from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import GATEWAY, SERVICE, engine, expected, start
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

TOPOLOGY = f"""{SERVICE}
[engines.engine]
count = 2
standby = 1
backend = "simulated"
profile = "h100-llama2-70b-tp4"
{GATEWAY}
"""


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    return start_mesh(TOPOLOGY.replace("{model}", str(write_tiny_model(tmp_path_factory.mktemp("model")))))


def test_engines_start_and_end_while_clients_stream(mesh: Mesh):
    file = str(mesh.topology)
    assert engine(mesh, "engine-1")["state"] == "standby"
    refused = mesh.run("stop", file, "engine-0")
    only = "engine-0 is the only engine that serves tiny: --last stops it all the same\n"
    assert (refused.returncode, refused.stderr) == (1, only)
    questions = [f"question {number}" for number in range(3)]
    streams = [start(mesh, question) for question in questions]
    started = mesh.run("start", file, "engine-1")
    assert (started.returncode, started.stderr) == (0, "")
    assert started.stdout.splitlines() == ["engine-1: starting", "engine-1: running", "engine-1 serves"]
    assert engine(mesh, "engine-1")["state"] == "ready"
    stopped = mesh.run("stop", file, "engine-0")
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert stopped.stdout.splitlines() == [
        "engine-0: leaving",
        "engine-0: standby",
        "engine-0 is on standby; `mesh start engine-0` starts it again",
    ]
    assert [stream.end() for stream in streams] == expected(mesh, *questions)
    assert (engine(mesh, "engine-0")["state"], engine(mesh, "engine-0")["last_exit"]) == ("standby", None)


def test_what_is_so_already_is_said(mesh: Mesh):
    file = str(mesh.topology)
    assert mesh.run("start", file, "engine-1").stdout == "engine-1 runs already\n"
    assert mesh.run("stop", file, "engine-0").stdout == "engine-0 does not run\n"
    unknown = mesh.run("start", file, "engine-7")
    assert (unknown.returncode, unknown.stderr) == (2, f"{file}: no engine 'engine-7'; did you mean 'engine-1'?\n")
