"""`mesh load` and `mesh unload` on a live mesh: services come and go, and no client notices."""

from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, Client, body, engine, expected, start
from tests.engines.models.tiny import write_gguf
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

TOPOLOGY = """
[services.tiny]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[services.other]
model = "{other}"
ttft_ms = 5000  # so long a request waits for an engine that serves it
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


def test_a_service_comes_and_goes_while_another_streams(mesh: Mesh):
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


def test_what_runs_moves_before_its_service_goes(mesh: Mesh):
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
        (["load", "one", "nothing"], 2, "no service 'nothing'; use gone, other or tiny"),
        (["load", "nobody", "tiny"], 2, "no engine 'nobody'; use one, three or two"),
        (["load", "one"], 2, "an engine and a service are needed; usage: mesh load"),
        (["load", "one", "gone"], 1, "one did not load gone: /"),
        (["unload", "three", "gone"], 1, "three is the only engine that serves gone: --last takes it away all"),
    ],
)
def test_a_mistake_is_one_line(mesh: Mesh, words: list[str], code: int, complaint: str):
    done = mesh.run(words[0], str(mesh.topology), *words[1:])
    assert done.returncode == code
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert ask(mesh, "tiny").status_code == 200


def test_nothing_is_to_be_done_twice(mesh: Mesh):
    assert mesh.run("load", str(mesh.topology), "one", "tiny").stdout == "one serves tiny already\n"
    assert mesh.run("unload", str(mesh.topology), "two", "other").stdout == "two does not serve other\n"


def test_the_last_engine_of_a_service_can_give_it_up_if_one_insists(mesh: Mesh):
    assert mesh.run("unload", str(mesh.topology), "one", "other", "--last").returncode == 0
    refused = ask(mesh, "other")
    assert refused.status_code == 503
    assert "retry-after" in refused.headers
    assert mesh.run("load", str(mesh.topology), "two", "other").returncode == 0
    assert ask(mesh, "other").status_code == 200


def test_what_runs_on_the_last_engine_of_a_service_ends_there(mesh: Mesh):
    stream = Client(mesh.url, {**body("a long story"), "model": "gone"}).begin()
    refused = mesh.run("unload", str(mesh.topology), "three", "gone")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    left = mesh.run("unload", str(mesh.topology), "three", "gone", "--last", "--timeout", "0.5")
    unloaded = mesh.run("unload", str(mesh.topology), "three", "gone", "--last")
    if stream.is_alive():  # unless the machine is busy
        assert left.stderr.startswith("three has not let go of gone after 0.5 s: 1 requests run; it will when")
    assert unloaded.returncode == 0
    assert services(mesh, "three") == []
    assert len(stream.end()) > 0
    assert ask(mesh, "gone").status_code == 503
    assert ask(mesh, "tiny").status_code == 200


BESIDE = 200  # that are computed while something is tried
LONG_TORCH = 800  # a second or two of them
TORCH = """
[services.tiny]
model = "{tiny}"
[services.other]
model = "{other}"
[services.converted]
model = "{converted}"
[engines.one]
services = ["tiny"]
kv_memory = "4MiB"
[engines.two]
kv_memory = "4MiB"
[gateways.gateway]
port = {port}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {name: write_tiny_model(tmp_path_factory.mktemp(name)) for name in ("tiny", "other")}
    converted = tmp_path_factory.mktemp("converted") / "converted.gguf"
    write_gguf(converted)
    return {**folders, "converted": converted}


@pytest.fixture(scope="module")
def torch_mesh(start_mesh: StartMesh, models: Mapping[str, Path]) -> Mesh:
    text = TORCH
    for name, path in models.items():
        text = text.replace(f"{{{name}}}", str(path))
    return start_mesh(text)


@pytest.fixture(scope="module")
def undisturbed(torch_mesh: Mesh) -> str:
    return Client(torch_mesh.url, body("Hello", BESIDE)).begin().end()


def answer(mesh: Mesh, service: str) -> tuple[str, str]:
    request = {"prompt": "Hello", "max_tokens": 40, "temperature": 0, "ignore_eos": True, "model": service}
    response = httpx.post(f"{mesh.url}/v1/completions", json=request, timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    return response.headers["x-meshserve-decode"], response.json()["choices"][0]["text"]


def stated(config: bytes) -> bytes:
    """Of a model with other projections."""
    return config.replace(b'"intermediate_size": 96', b'"intermediate_size": 128')


@pytest.mark.parametrize(
    ("service", "file", "damage", "complaint"),
    [
        ("other", "model.safetensors", lambda whole: whole[:-1], "damaged: it has"),
        ("other", "model.safetensors", None, "neither model.safetensors nor"),
        ("other", "config.json", stated, "by config.json it should be"),
        ("converted", "", lambda whole: whole[: len(whole) // 2], "not a readable GGUF file"),
    ],
)
def test_weights_that_are_missing_or_damaged_are_told_in_a_line_and_the_mesh_goes_on(
    torch_mesh: Mesh,
    models: Mapping[str, Path],
    undisturbed: str,
    service: str,
    file: str,
    damage: Callable[[bytes], bytes] | None,
    complaint: str,
):
    path = models[service] / file if file else models[service]
    whole = path.read_bytes()
    stream = start(torch_mesh, "Hello", BESIDE)
    path.unlink()
    try:
        if damage is not None:
            path.write_bytes(damage(whole))
        refused = torch_mesh.run("load", str(torch_mesh.topology), "one", service)
    finally:
        path.write_bytes(whole)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1), refused.stderr
    assert refused.stderr.startswith(f"one did not load {service}: "), refused.stderr
    assert complaint in refused.stderr
    assert str(models[service]) in refused.stderr
    assert stream.end() == undisturbed
    assert answer(torch_mesh, service)[0] == "two"
    assert services(torch_mesh, "one") == ["tiny"]


def test_weights_are_loaded_beside_what_is_computed(torch_mesh: Mesh):
    decode, text = answer(torch_mesh, "other")
    assert decode == "two"
    loaded = torch_mesh.run("load", str(torch_mesh.topology), "one", "other")
    assert (loaded.returncode, loaded.stderr) == (0, "")
    assert torch_mesh.run("unload", str(torch_mesh.topology), "two", "other").returncode == 0
    assert answer(torch_mesh, "other") == ("one", text)
    assert services(torch_mesh, "two") == ["tiny", "converted"]


def test_a_service_that_lost_its_weights_goes_on_with_its_kv_when_they_are_back(torch_mesh: Mesh):
    asked = {**body("a long story", LONG_TORCH), "model": "other"}
    undisturbed = Client(torch_mesh.url, asked).begin().end()
    stream = Client(torch_mesh.url, asked).begin()
    words = str(torch_mesh.topology), "one", "other"
    paused = torch_mesh.run("unload", *words, "--pause", "--last", "--timeout", "0.5")
    loaded = torch_mesh.run("load", *words)
    assert (loaded.returncode, loaded.stderr) == (0, "")
    if stream.is_alive() or paused.returncode:  # unless the machine is quick
        assert paused.stderr.startswith("one has not let go of other after 0.5 s: 1 requests are paused; it will when")
    assert stream.end() == undisturbed
