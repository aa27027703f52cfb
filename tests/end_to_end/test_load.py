"""`mesh load` and `mesh unload` on a live mesh: services come and go, and no client notices."""

import httpx
import pytest

from bench.tiny_model import write_tiny_model
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, body, engine, expected, start

pytestmark = pytest.mark.timeout(300)

TOPOLOGY = """
[services.tiny]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[services.other]
model = "{other}"
ttft_ms = 30000
tpot_ms = 1000
[services.gone]
model = "{gone}"
[engines.one]
services = ["tiny"]
role = "multiplex"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
[engines.two]
services = ["tiny", "other"]
role = "multiplex"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
[engines.three]
services = ["gone"]
role = "multiplex"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
[gateways.gateway]
port = {port}
[policy]
name = "least_loaded"
"""


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    folders = {name: write_tiny_model(tmp_path_factory.mktemp(name)) for name in ("model", "other", "gone")}
    text = TOPOLOGY
    for name, folder in folders.items():
        text = text.replace(f"{{{name}}}", str(folder))
    mesh = start_mesh(text)
    (folders["gone"] / "config.json").unlink()
    return mesh


def services(mesh: Mesh, name: str) -> list[str]:
    return [service["name"] for service in engine(mesh, name)["services"]]  # type: ignore[attr-defined]


def ask(mesh: Mesh, service: str) -> httpx.Response:
    request = {**body("Hello", 8), "model": service}
    return httpx.post(f"{mesh.url}/v1/completions", json=request, timeout=DEADLINE_S)


def test_a_service_comes_and_goes_while_another_streams(mesh: Mesh) -> None:
    assert ask(mesh, "other").headers["x-meshserve-decode"] == "two"
    questions = ["question 0", "question 1"]
    streams = [start(mesh, question) for question in questions]
    loaded = mesh.run("load", str(mesh.topology), "one", "other")
    assert (loaded.returncode, loaded.stderr) == (0, "")
    assert loaded.stdout.splitlines() == [
        "one: loading other",
        "one serves other now; a restart gives it the topology's services again",
    ]
    assert services(mesh, "one") == ["tiny", "other"]
    unloaded = mesh.run("unload", str(mesh.topology), "two", "other")
    assert (unloaded.returncode, unloaded.stderr) == (0, "")
    assert services(mesh, "two") == ["tiny"]
    answer = ask(mesh, "other")
    assert (answer.status_code, answer.headers["x-meshserve-decode"]) == (200, "one")
    assert [stream.end() for stream in streams] == expected(mesh, *questions)


def test_what_runs_moves_before_its_service_goes(mesh: Mesh) -> None:
    stream = start(mesh, "a long story")
    here = stream.decode
    num_moved = int(str(engine(mesh, here)["migrations"]))
    unloaded = mesh.run("unload", str(mesh.topology), here, "tiny")
    assert unloaded.returncode == 0, unloaded.stderr
    is_going_on = stream.is_alive()  # unless the machine is busy
    assert int(str(engine(mesh, here)["migrations"])) >= num_moved + is_going_on
    assert "tiny" not in services(mesh, here)
    assert [stream.end()] == expected(mesh, "a long story")
    assert mesh.run("load", str(mesh.topology), here, "tiny").returncode == 0
    assert "tiny" in services(mesh, here)


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["load", "one", "nothing"], 2, "no service 'nothing'; there are tiny, other, gone"),
        (["load", "nobody", "tiny"], 2, "no engine 'nobody'; there are one, two, three"),
        (["load", "one"], 2, "an engine and a service are needed; usage: mesh load"),
        (["load", "one", "gone"], 1, "one did not load gone: /"),
        (["unload", "three", "gone"], 1, "three is the only engine that serves gone: --last takes it away all"),
    ],
)
def test_a_mistake_is_one_line(mesh: Mesh, words: list[str], code: int, complaint: str) -> None:
    done = mesh.run(words[0], str(mesh.topology), *words[1:])
    assert done.returncode == code
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert ask(mesh, "tiny").status_code == 200


def test_nothing_is_to_be_done_twice(mesh: Mesh) -> None:
    assert mesh.run("load", str(mesh.topology), "one", "tiny").stdout == "one serves tiny already\n"
    assert mesh.run("unload", str(mesh.topology), "two", "other").stdout == "two does not serve other\n"


def test_the_last_engine_of_a_service_can_give_it_up_if_one_insists(mesh: Mesh) -> None:
    assert mesh.run("unload", str(mesh.topology), "one", "other", "--last").returncode == 0
    refused = ask(mesh, "other")
    assert refused.status_code == 503
    assert "retry-after" in refused.headers
    assert mesh.run("load", str(mesh.topology), "two", "other").returncode == 0
    assert ask(mesh, "other").status_code == 200


TORCH = """
[services.tiny]
model = "{model}"
[services.other]
model = "{other}"
[engines.one]
services = ["tiny"]
kv_memory = "4MiB"
[engines.two]
kv_memory = "4MiB"
[gateways.gateway]
port = {port}
"""


def test_weights_are_loaded_beside_what_is_computed(
    start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folders = {name: write_tiny_model(tmp_path_factory.mktemp(name)) for name in ("model", "other")}
    mesh = start_mesh(TORCH.replace("{model}", str(folders["model"])).replace("{other}", str(folders["other"])))
    request = {"prompt": "Hello", "max_tokens": 40, "temperature": 0, "ignore_eos": True, "model": "other"}

    def answer() -> tuple[str, str]:
        response = httpx.post(f"{mesh.url}/v1/completions", json=request, timeout=DEADLINE_S)
        assert response.status_code == 200, response.text
        return response.headers["x-meshserve-decode"], response.json()["choices"][0]["text"]

    decode, text = answer()
    assert decode == "two"
    weights = folders["other"] / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    refused = mesh.run("load", str(mesh.topology), "one", "other")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert refused.stderr.startswith(f"one did not load other: {weights}: damaged: it has {len(whole) - 1:,} bytes")
    weights.write_bytes(whole)
    loaded = mesh.run("load", str(mesh.topology), "one", "other")
    assert (loaded.returncode, loaded.stderr) == (0, "")
    assert mesh.run("unload", str(mesh.topology), "two", "other").returncode == 0
    assert answer() == ("one", text)
    assert services(mesh, "two") == ["tiny"]
