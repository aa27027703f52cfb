"""An engine takes the devices of two others on a live mesh, and gives them back, and no client notices."""

import asyncio

import pytest

from mesh.topology.parse import load
from mesh.wire.control import EnginePlace, Role
from router.cli.plan import carry_out
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import GATEWAY, SERVICE, engine, expected, start
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

TOPOLOGY = f"""{SERVICE}
[engines.other]
backend = "simulated"
profile = "a100-llama3-8b-tp1"
[engines.narrow]
count = 2
backend = "simulated"
profile = "a100-llama3-8b-tp1"
[engines.wide]
spans = ["narrow"]
backend = "simulated"
profile = "a100-llama3-8b-tp2"
{GATEWAY}
"""


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    return start_mesh(TOPOLOGY.replace("{model}", str(write_tiny_model(tmp_path_factory.mktemp("model")))))


def states(mesh: Mesh) -> list[str]:
    return [str(engine(mesh, name)["state"]) for name in ("narrow-0", "narrow-1", "wide")]


def test_devices_change_hands_while_clients_stream(mesh: Mesh):
    file = str(mesh.topology)
    assert states(mesh) == ["ready", "ready", "standby"]
    questions = [f"question {number}" for number in range(4)]
    streams = [start(mesh, question) for question in questions]
    started = mesh.run("start", file, "wide")
    assert (started.returncode, started.stderr) == (0, "")
    assert started.stdout.splitlines() == ["wide: starting", "wide: running", "wide serves"]
    assert states(mesh) == ["standby", "standby", "ready"]
    back = mesh.run("start", file, "narrow-0")
    assert (back.returncode, back.stderr) == (0, "")
    assert states(mesh) == ["ready", "standby", "standby"]
    assert [stream.end() for stream in streams] == expected(mesh, *questions)


def test_a_plan_that_was_found_gives_devices_to_the_engines_that_it_needs(
    mesh: Mesh, capsys: pytest.CaptureFixture[str]
):
    assert mesh.run("start", str(mesh.topology), "narrow-1").returncode == 0
    questions = [f"question {number}" for number in range(2)]
    streams = [start(mesh, question) for question in questions]
    wanted = {name: EnginePlace(0, 2, ("tiny",), Role.MULTIPLEX) for name in ("other", "wide")}
    asyncio.run(carry_out(load(mesh.topology), wanted, 60.0, is_all=False))
    said = capsys.readouterr().out.splitlines()
    assert "wide: is to take its devices" in said
    assert said[-1] == "plan 1 is carried out"
    assert states(mesh) == ["standby", "standby", "ready"]
    assert [stream.end() for stream in streams] == expected(mesh, *questions)
