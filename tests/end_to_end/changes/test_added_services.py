"""Services that are added to a mesh while it runs: engines load them, gateways serve them, restarts know them."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from mesh.cli.cluster import visitor
from mesh.errors import EXIT_INTERRUPTED
from mesh.topology.parse import load
from mesh.wire.control import LoadService
from mesh.wire.status import DecodeCost
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, Client, engine, until, write_slow_profile
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

DEPLOY = Path(__file__).parents[3] / "deploy"
MESH = """
[mesh]
heartbeat_ms = 100
[services.base]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[engines.e]
count = 2
kv_memory = "4MiB"
[gateways.gateway]
port = {port}
"""


def table(name: str, model: Path, more: str = "") -> str:
    return f'[services.{name}]\nmodel = "{model}"\nttft_ms = 30000\ntpot_ms = 1000\n{more}'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, model: Path) -> Mesh:
    return start_mesh(MESH.replace("{model}", str(model)))


def ask(mesh: Mesh, service: str) -> httpx.Response:
    body = {"model": service, "prompt": "abc", "max_tokens": 4, "ignore_eos": True, "seed": 1}
    return httpx.post(f"{mesh.url}/v1/completions", json=body, timeout=DEADLINE_S)


@contextmanager
def asked(mesh: Mesh, service: str) -> Iterator[None]:
    """Ask for it again and again."""
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.wait(0.05):
            ask(mesh, service)

    asking = threading.Thread(target=go_on)
    asking.start()
    try:
        yield
    finally:
        is_over.set()
        asking.join()


def names(mesh: Mesh) -> list[str]:
    return [one["id"] for one in httpx.get(f"{mesh.url}/v1/models").json()["data"]]


def change(mesh: Mesh, *words: str) -> str:
    done = mesh.run("services", words[0], str(mesh.topology), *words[1:])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_added_service_is_served_survives_restarts_and_can_be_removed(mesh: Mesh, model: Path, tmp_path: Path):
    path = tmp_path / "more.toml"
    path.write_text(table("more", model, 'aliases = ["mehr"]\n'))
    assert ask(mesh, "more").status_code == 404
    before = ask(mesh, "base").json()["choices"]
    assert "more is served now by e-0, e-1" in change(mesh, "add", str(path))
    assert {"base", "more"} <= set(names(mesh))
    assert [ask(mesh, name).json()["choices"] for name in ("more", "mehr", "base")] == [before] * 3
    again = mesh.run("services", "add", str(mesh.topology), str(path))
    assert (again.returncode, "was added already" in again.stderr) == (2, True)

    pids = [int(str(engine(mesh, name)["pid"])) for name in ("e-0", "e-1")]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: all(engine(mesh, name)["state"] == "ready" for name in ("e-0", "e-1")))
    until(lambda: all(engine(mesh, name)["pid"] not in pids for name in ("e-0", "e-1")))
    until(lambda: ask(mesh, "more").status_code == 200)
    listed = change(mesh, "list").splitlines()
    assert listed == ["base: served by e-0, e-1", "more: served by e-0, e-1, added while the mesh runs"]

    planned = mesh.run("plan", str(mesh.topology), "apply", str(mesh.topology))
    assert (planned.returncode, "is carried out" in planned.stdout) == (0, True), planned.stderr
    assert change(mesh, "list").splitlines() == listed, "a plan for what the file has leaves the rest"
    with asked(mesh, "more"):
        found = mesh.run("plan", str(mesh.topology), "search", "--listen", "1", "--improve", "0.1", "--json")
    assert (found.returncode, '"more"' in found.stdout) == (0, True), found.stderr

    payload = {"model": "more", "prompt": "abc", "max_tokens": 400, "seed": 3, "ignore_eos": True}
    running = Client(mesh.url, payload).begin()
    assert "more is not served any more" in change(mesh, "remove", "more")
    assert running.end(), "it ends as it would"
    answer = ask(mesh, "more")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert ask(mesh, "base").json()["choices"] == before
    assert change(mesh, "list").splitlines() == ["base: served by e-0, e-1"]
    standing = mesh.run("plan", str(mesh.topology)).stdout
    assert ("plan 1 is carried out" in standing, "more" in standing) == (True, False), standing

    asyncio.run(tell(mesh, "e-0", LoadService("more")))
    until(lambda: "e-0: does not serve more: this engine's topology has no such service; it has: base" in looks(mesh))


def test_requests_that_wait_in_a_gateway_are_answered_before_engines_let_go(
    start_mesh: StartMesh, model: Path, tmp_path: Path
):
    """A token takes 10 ms, and engines have one request at a time: some are in the gateway until it has a successor."""
    profile = write_slow_profile(tmp_path, DecodeCost(0.01, 0.0))
    slow = f'max_running = 1\nbackend = "simulated"\nprofile = "{profile}"\n[gateways'
    mesh = start_mesh(MESH.replace("{model}", str(model)).replace("[gateways", slow))
    path = tmp_path / "asked.toml"
    path.write_text(table("asked", model))
    change(mesh, "add", str(path))
    payload = {"model": "asked", "prompt": "abc", "max_tokens": 150, "ignore_eos": True}
    asking = [Client(mesh.url, {**payload, "seed": seed}) for seed in range(8)]
    for client in asking:
        client.start()
    until(lambda: mesh.status()["gateways"][0]["requests"] == len(asking))
    assert "asked is not served any more" in change(mesh, "remove", "asked")
    assert all(client.end() for client in asking)


async def tell(mesh: Mesh, process: str, order: LoadService) -> None:
    """As a daemon does that has not heard of everything yet."""
    async with visitor(load(mesh.topology)) as sockets:
        sockets.send(process, order)


def looks(mesh: Mesh) -> str:
    return " ".join(mesh.run("status", str(mesh.topology)).stdout.split())


def test_nothing_changes_where_engines_cannot_load_it_as_they_are(mesh: Mesh, tmp_path: Path):
    """Their memory is laid out in pages for the blocks of what they have."""
    path = tmp_path / "wide.toml"
    path.write_text(table("wide", DEPLOY / "models" / "byte-llama"))
    failed = mesh.run("services", "add", str(mesh.topology), str(path))
    assert (failed.returncode, "(--replace does that, one engine at a time)" in failed.stderr) == (1, True)
    assert change(mesh, "list").splitlines() == ["base: served by e-0, e-1"]
    assert names(mesh) == ["base"]
    until(lambda: "wide" not in looks(mesh))


def test_nothing_changes_where_a_gateway_cannot_serve_it(mesh: Mesh, model: Path, tmp_path: Path):
    """Its tokenizer is broken, which only gateways read. Whoever waits is told at once."""
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    (broken / "tokenizer.json").write_text("{")
    path = tmp_path / "broken.toml"
    path.write_text(table("broken", broken))
    before = mesh.status()["gateways"][0]["pid"]
    failed = mesh.run("services", "add", str(mesh.topology), str(path))
    assert failed.returncode == 1, failed.stderr
    assert "gateway~: not replaced: exit code 2: " in failed.stderr
    assert len(failed.stderr.splitlines()) == 1
    assert change(mesh, "list").splitlines() == ["base: served by e-0, e-1"]
    assert (names(mesh), mesh.status()["gateways"][0]["pid"]) == (["base"], before)


def test_what_another_service_needs_stays(mesh: Mesh, model: Path, tmp_path: Path):
    path = tmp_path / "drafted.toml"
    drafted = table("drafted", model, 'speculation = "draft_model"\ndraft = "drafts"\n')
    path.write_text(table("drafts", model) + drafted)
    change(mesh, "add", str(path))
    refused = mesh.run("services", "remove", str(mesh.topology), "drafts")
    assert refused.returncode == 2
    assert refused.stderr.startswith("drafts: stays, since another service needs it: ")
    assert "services.drafted.draft: 'drafts' is no other service" in refused.stderr
    assert names(mesh) == ["base", "drafts", "drafted"]
    assert "drafted is not served any more" in change(mesh, "remove", "drafts", "drafted")


def test_a_command_that_is_told_to_end_undoes_what_it_did(mesh: Mesh, model: Path, tmp_path: Path):
    path = tmp_path / "never.toml"
    path.write_text(table("never", model))
    command = [sys.executable, "-m", "mesh.cli", "services", "add", str(mesh.topology), str(path)]
    with subprocess.Popen(command, env=mesh.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as adding:
        assert adding.stdout is not None
        assert any(line.startswith("loading never") for line in adding.stdout)
        adding.terminate()
        _, said = adding.communicate(timeout=DEADLINE_S)
    assert (adding.returncode, said) == (EXIT_INTERRUPTED, "interrupted\n")
    until(lambda: change(mesh, "list").splitlines() == ["base: served by e-0, e-1"])
    until(lambda: names(mesh) == ["base"])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("remove", "base"), "base is a service of "),
        (("remove", "moore"), "no service 'moore' was added"),
        (("remove",), "which service? usage: mesh services remove"),
        (("add", "no.toml"), "no.toml: no such file"),
        (("remove", "more", "--host", "west"), "has no host 'west'; say which one this is with --host local"),
        (("add", "a.toml", "b.toml"), "one file of services is needed; usage: mesh services add"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_a_line(mesh: Mesh, words: tuple[str, ...], problem: str):
    done = mesh.run("services", words[0], str(mesh.topology), *words[1:])
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert problem in done.stderr
