"""`mesh policy` and `mesh explain` on a live mesh of two gateways, whose engines wait modelled times."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh, free_port
from tests.end_to_end.tiny import DEADLINE_S, simulated_mesh, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

SECOND = """
[gateways.second]
port = {other_port}
"""


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    return start_mesh(
        (simulated_mesh() + SECOND).replace("{model}", str(model)).replace("{other_port}", str(free_port()))
    )


def policies(mesh: Mesh) -> dict[str, str]:
    return {str(row["id"]): str(row["policy"]) for row in mesh.status()["gateways"]}


def pid_of(mesh: Mesh, gateway: str) -> int:
    return next(int(str(row["pid"])) for row in mesh.status()["gateways"] if row["id"] == gateway)


def other_url(mesh: Mesh) -> str:
    return next(str(row["url"]) for row in mesh.status()["gateways"] if row["id"] == "second")


def complete(url: str, **more: object) -> httpx.Response:
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": 8, "ignore_eos": True, **more}
    response = httpx.post(f"{url}/v1/completions", json=body, timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    return response


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """As if it hung."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_switch_reaches_every_gateway_and_running_streams_go_on(mesh: Mesh):
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": 60, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{mesh.url}/v1/completions", json=body, timeout=DEADLINE_S) as response:
        lines = response.iter_lines()
        next(lines)
        switched = mesh.run("policy", str(mesh.topology), "colocated")
        rest = [line for line in lines if line.startswith("data: {")]
    assert (switched.returncode, switched.stderr) == (0, "")
    assert switched.stdout.endswith("all gateways run colocated reject_late=false\n")
    assert not any("error" in line for line in rest)
    assert json.loads(rest[-1].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert policies(mesh) == {"gateway": "colocated", "second": "colocated"}
    complete(mesh.url)
    newest = json.loads(mesh.run("explain", str(mesh.topology), "--json", "-n", "1").stdout)
    first = next(answer for answer in newest if answer["gateway"] == "gateway")
    assert first["requests"][0]["events"][0]["policy"] == "colocated"


def test_a_gateway_that_starts_again_takes_the_policy_of_the_others(mesh: Mesh):
    assert mesh.run("policy", str(mesh.topology), "tropical", "watermark=0.7").returncode == 0
    before = pid_of(mesh, "second")
    os.kill(before, signal.SIGKILL)

    def is_back() -> bool:
        row = next(row for row in mesh.status()["gateways"] if row["id"] == "second")
        return row["state"] == "ready" and row["pid"] != before

    until(is_back)
    until(lambda: mesh.run("policy", str(mesh.topology)).stdout.count("watermark=0.7") == 2)


def test_a_gateway_that_does_not_answer_is_named_and_catches_up_later(mesh: Mesh):
    with stopped(pid_of(mesh, "second")):
        switched = mesh.run("policy", str(mesh.topology), "round_robin")
        assert switched.returncode == 1
        assert switched.stderr == (
            "second did not answer (it runs, but is silent); it takes the policy of the others when it is back\n"
        )
        assert "all gateways" not in switched.stdout
        assert policies(mesh)["gateway"] == "round_robin"
    until(lambda: policies(mesh)["second"] == "round_robin")


def test_nothing_is_sent_for_a_mistake(mesh: Mesh):
    before = policies(mesh)
    for words in (["best"], ["tropical", "watermrak=1"], ["tropical", "watermark=7"]):
        wrong = mesh.run("policy", str(mesh.topology), *words)
        assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
    assert policies(mesh) == before


def test_explain_finds_a_request_by_what_its_client_saw(mesh: Mesh):
    response = complete(other_url(mesh), n=2)
    for asked in (response.json()["id"], response.headers["x-request-id"]):
        found = mesh.run("explain", str(mesh.topology), asked)
        assert found.returncode == 0, found.stderr
        assert found.stdout.count("arrived at second") == 2
        assert "finished (length), 8 tokens" in found.stdout
    data = json.loads(mesh.run("explain", str(mesh.topology), response.json()["id"], "--json").stdout)
    assert len(data["requests"]) == 2
    assert [event["type"] for event in data["requests"][0]["events"]][-1] == "ended"


def test_explain_without_an_id_lists_and_an_unknown_id_is_one_line(mesh: Mesh):
    token = complete(mesh.url).json()["id"].removeprefix("cmpl-")
    assert token in mesh.run("explain", str(mesh.topology)).stdout
    unknown = mesh.run("explain", str(mesh.topology), "chatcmpl-nobody")
    assert (unknown.returncode, unknown.stdout, unknown.stderr.count("\n")) == (1, "", 1)
    assert "gateway knows no request 'chatcmpl-nobody': it remembers every request since it started" in unknown.stderr


def test_a_mesh_that_does_not_run_says_so(mesh: Mesh):
    other = mesh.topology.with_name("idle.toml")
    other.write_text(mesh.topology.read_text())
    idle = mesh.run("policy", str(other))
    assert (idle.returncode, idle.stdout) == (1, "")
    assert "mesh 'idle' is not running" in idle.stderr
