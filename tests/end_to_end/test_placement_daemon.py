"""The placement daemon on a live mesh: traffic shifts, services follow, and nobody who asked for anything notices."""

import json
import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from bench.tiny_model import write_tiny_model
from engines.profiles import ProfileFile
from mesh.messages import DecodeCost, PrefillCost
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, engine, until

pytestmark = pytest.mark.timeout(300)

NUM_TOKENS = 20
RATES = {"a": 0.2, "b": 1.7}  # an engine can answer 1.25 requests a second
TOPOLOGY = """
[services.a]
model = "{a}"
ttft_ms = 5000
tpot_ms = 400
[services.b]
model = "{b}"
ttft_ms = 5000
tpot_ms = 400
[engines.e0]
services = ["a"]
backend = "simulated"
profile = "{profile}"
[engines.e1]
services = ["b"]
backend = "simulated"
profile = "{profile}"
[gateways.gateway]
port = {port}
[policy]
name = "least_loaded"
[placement]
mode = "{mode}"
interval_s = 6
shortest_s = 4
longest_s = 10
improve_s = 0.5
"""
BEFORE = {"e0": ["a"], "e1": ["b"]}


class Load(threading.Thread):
    """Requests of both services, until it is left."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self._mesh = mesh
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(64)
        self.answers: list[Future[httpx.Response]] = []

    def __enter__(self) -> "Load":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()
        self._pool.shutdown()

    def run(self) -> None:
        due = dict.fromkeys(RATES, time.monotonic())
        while not self._is_over.wait(0.05):
            for name, at in due.items():
                if time.monotonic() >= at:
                    due[name] = at + 1 / RATES[name]
                    self.answers.append(self._pool.submit(ask, self._mesh, name, len(self.answers)))


def ask(mesh: Mesh, service: str, number: int) -> httpx.Response:
    request = {"model": service, "prompt": f"question {number % 4}", "max_tokens": NUM_TOKENS, "seed": 3}
    return httpx.post(f"{mesh.url}/v1/completions", json={**request, "ignore_eos": True}, timeout=DEADLINE_S)


def assert_all_are_right(load: Load) -> None:
    """Each is as long as it was to be, and the same as others to the same question."""
    texts: dict[tuple[str, int], set[str]] = {}
    for number, future in enumerate(load.answers):
        answer = future.result()
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert told["usage"]["completion_tokens"] == NUM_TOKENS
        texts.setdefault((told["model"], number % 4), set()).add(told["choices"][0]["text"])
    assert len(texts) > 4
    assert all(len(those) == 1 for those in texts.values())


def placement(mesh: Mesh) -> dict[str, list[str]]:
    return {name: [one["name"] for one in engine(mesh, name)["services"]] for name in BEFORE}  # type: ignore[attr-defined]


def daemon(mesh: Mesh) -> dict[str, object]:
    return mesh.status()["placement"]  # type: ignore[return-value]


def plan(mesh: Mesh) -> dict[str, object]:
    return json.loads(mesh.run("plan", str(mesh.topology), "--json").stdout)["daemon"]  # type: ignore[no-any-return]


def doing(mesh: Mesh) -> object:
    """None while the daemon says nothing."""
    return (plan(mesh) or {}).get("doing")


class Gate:
    """A model that cannot be read until it is opened: who reads it waits."""

    def __init__(self, model: Path) -> None:
        self._config, self._pipe = model / "config.json", model / "pipe"
        self._text = self._config.read_bytes()
        os.mkfifo(self._pipe)

    def close(self) -> None:
        self._config.unlink()
        os.link(self._pipe, self._config)

    def open(self) -> None:
        """For those who wait, and for all who come later."""
        self._config.unlink()
        self._config.write_bytes(self._text)
        self._pipe.write_bytes(self._text)


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    profile = ProfileFile(
        name="slow",
        source="made up",
        kv_bytes_per_token=1,
        kv_memory_bytes=32768,
        prefill=PrefillCost(fixed_s=0.01, per_token_s=0.0001),
        decode=DecodeCost(fixed_s=0.005, per_request_s=0.04),
    )
    (tmp_path / "profile.toml").write_text(profile.text())
    return {name: write_tiny_model(tmp_path / name) for name in RATES}


def text(models: dict[str, Path], mode: str) -> str:
    filled = TOPOLOGY.replace("{mode}", mode).replace("{profile}", str(models["a"].parent / "profile.toml"))
    for name, folder in models.items():
        filled = filled.replace(f"{{{name}}}", str(folder))
    return filled


def test_a_service_follows_its_traffic_though_the_daemon_dies_on_the_way(
    start_mesh: StartMesh, models: dict[str, Path]
) -> None:
    mesh, gate = start_mesh(text(models, "apply")), Gate(models["b"])
    gate.close()
    with Load(mesh) as load:
        until(lambda: doing(mesh) == "plan 1: loading", every_s=0.5)
        os.kill(int(str(daemon(mesh)["pid"])), signal.SIGKILL)
        until(lambda: daemon(mesh)["restarts"] == 1 and plan(mesh) is not None, every_s=0.5)
        until(lambda: doing(mesh) == "plan 1: loading", every_s=0.5)
        assert placement(mesh) == BEFORE
        gate.open()
        until(lambda: daemon(mesh)["changes"] == 1, every_s=0.5)
        assert "b" in placement(mesh)["e0"]
    assert_all_are_right(load)
    logs = mesh.run("logs", "placement", "--topology", str(mesh.topology)).stdout
    assert "goes on with interval" in logs
    assert "plan 1 is to be carried out: all engines know of it" in logs
    assert mesh.run("plan", str(mesh.topology)).stdout.endswith("plan 1 is carried out\n")


def test_in_shadow_it_only_says_what_it_would_do_until_somebody_does_that(
    start_mesh: StartMesh, models: dict[str, Path]
) -> None:
    mesh = start_mesh(text(models, "shadow"))
    early = mesh.run("plan", str(mesh.topology), "--apply")
    assert (early.returncode, len(early.stderr.splitlines())) == (1, 1)
    assert early.stderr.startswith("placement has found no plan: ")
    with Load(mesh) as load:
        until(lambda: ((plan(mesh) or {}).get("decision") or {}).get("verdict") == "replace", every_s=0.5)  # type: ignore[attr-defined]
        time.sleep(1.0)
        assert placement(mesh) == BEFORE
        shown = mesh.run("plan", str(mesh.topology)).stdout
        assert "shadow, changes nothing: `mesh plan --apply` does" in shown
        assert "no plan was made since the engines started" in shown
        metrics = httpx.get(f"{mesh.url}/metrics").text
        assert 'meshserve_placement_decisions_total{verdict="replace"} ' in metrics
        assert 'meshserve_placement_attainment{kind="proposed",service="b"} ' in metrics
        applied = mesh.run("plan", str(mesh.topology), "--apply")
        assert (applied.returncode, applied.stderr) == (0, "")
        assert applied.stdout.endswith("plan 1 is carried out\n")
        assert "b" in placement(mesh)["e0"]
    assert_all_are_right(load)
    until(lambda: daemon(mesh)["plan"] == 1, every_s=0.5)
