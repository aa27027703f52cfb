"""`mesh plan` on a live mesh: from one placement to another while answers stream, and no client notices."""

from pathlib import Path

import pytest

from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import GATEWAY, SERVICE, engine, expected, start
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

OTHER = SERVICE.replace("services.tiny", "services.other")
ENGINE = """
[engines.{name}]
services = {services}
role = "{role}"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
"""
BEFORE = {"one": (["tiny"], "multiplex"), "two": (["tiny"], "multiplex"), "three": (["other"], "multiplex")}
AFTER = {"one": (["other"], "multiplex"), "two": (["other"], "multiplex"), "three": (["tiny"], "multiplex")}


def text(engines: dict[str, tuple[list[str], str]]) -> str:
    tables = [
        ENGINE.format(name=name, services=str(services).replace("'", '"'), role=role)
        for name, (services, role) in engines.items()
    ]
    return SERVICE + OTHER + "".join(tables) + GATEWAY


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, model: str) -> Mesh:
    return start_mesh(text(BEFORE).replace("{model}", model))


@pytest.fixture
def plan(tmp_path: Path, model: str) -> Path:
    path = tmp_path / "new.toml"
    path.write_text(text(AFTER).replace("{model}", model).replace("{port}", "8000"))
    return path


def placement(mesh: Mesh) -> dict[str, list[str]]:
    return {name: [one["name"] for one in engine(mesh, name)["services"]] for name in BEFORE}  # type: ignore[attr-defined]


def test_a_plan_is_carried_out_while_answers_stream(mesh: Mesh, plan: Path):
    before = mesh.run("plan", str(mesh.topology))
    assert before.stdout.endswith("no plan was made since the engines started\n")
    questions = [f"question {number}" for number in range(3)]
    streams = [start(mesh, question) for question in questions]
    applied = mesh.run("plan", str(mesh.topology), "apply", str(plan))
    assert (applied.returncode, applied.stderr) == (0, "")
    assert applied.stdout.splitlines()[0] == "plan 1: announcing"
    assert applied.stdout.splitlines()[-1] == "plan 1 is carried out"
    assert "three: loading tiny" in applied.stdout
    assert placement(mesh) == {"one": ["other"], "two": ["other"], "three": ["tiny"]}
    going_on = sum(stream.is_alive() for stream in streams)  # all of them, unless the machine is busy
    assert sum(int(str(engine(mesh, name)["migrations"])) for name in BEFORE) >= going_on
    assert [stream.end() for stream in streams] == expected(mesh, *questions)
    assert mesh.run("plan", str(mesh.topology)).stdout.endswith("plan 1 is carried out\n")
    assert mesh.run("plan", str(mesh.topology), "resume").stdout.endswith("plan 1 is carried out\n")


def test_a_plan_for_other_engines_is_refused_in_one_line(mesh: Mesh, plan: Path):
    plan.write_text(plan.read_text().replace("engines.three", "engines.four"))
    refused = mesh.run("plan", str(mesh.topology), "apply", str(plan))
    assert refused.returncode == 2
    why = f"its engines are not those of {mesh.topology}: four, three; a plan changes no engines"
    assert refused.stderr == f"{plan}: {why}\n"


def test_a_plan_for_an_engine_that_is_gone_is_given_up_in_one_line_and_everything_is_served(mesh: Mesh, plan: Path):
    held = {service for services in placement(mesh).values() for service in services}
    assert mesh.run("stop", str(mesh.topology), "two").returncode == 0
    stream = start(mesh, "a question")
    refused = mesh.run("plan", str(mesh.topology), "apply", str(plan))
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert refused.stderr.endswith("was given up: two is gone; what was loaded stays\n")
    assert [stream.end()] == expected(mesh, "a question")
    assert mesh.run("start", str(mesh.topology), "two").returncode == 0
    assert {service for services in placement(mesh).values() for service in services} == held
