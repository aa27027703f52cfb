"""The placement daemon on a live mesh: traffic shifts, services follow, and nobody who asked for anything notices."""

import json
import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from mesh.wire.status import DecodeCost
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.load import Load
from tests.end_to_end.tiny import engine, until, write_slow_profile
from tests.models.tiny_llama import write_tiny_model
from tests.seeds import is_night

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
BEFORE = {"e0": {"a"}, "e1": {"b"}}


def placement(mesh: Mesh) -> dict[str, set[str]]:
    return {name: {one["name"] for one in engine(mesh, name)["services"]} for name in BEFORE}  # type: ignore[attr-defined]


def announced(mesh: Mesh) -> dict[str, set[str]]:
    """What plan 1 wants of each engine."""
    told = json.loads(mesh.run("plan", str(mesh.topology), "--json").stdout)
    assert [row["planned"]["number"] for row in told["engines"]] == [1, 1]
    return {row["id"]: set(row["planned"]["services"]) for row in told["engines"]}


def daemon(mesh: Mesh) -> dict[str, object]:
    return mesh.status()["placement"]  # type: ignore[return-value]


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
    write_slow_profile(tmp_path, DecodeCost(fixed_s=0.005, per_request_s=0.04))
    return {name: write_tiny_model(tmp_path / name) for name in RATES}


def text(models: dict[str, Path], mode: str) -> str:
    filled = TOPOLOGY.replace("{mode}", mode).replace("{profile}", str(models["a"].parent / "profile.toml"))
    for name, folder in models.items():
        filled = filled.replace(f"{{{name}}}", str(folder))
    return filled


def test_a_service_follows_its_traffic_though_the_daemon_dies_on_the_way(
    start_mesh: StartMesh, models: dict[str, Path]
):
    mesh, gate = start_mesh(text(models, "apply")), Gate(models["b"])
    gate.close()
    with Load(mesh, RATES, NUM_TOKENS) as load:
        until(lambda: daemon(mesh)["doing"] == "plan 1: loading")
        os.kill(int(str(daemon(mesh)["pid"])), signal.SIGKILL)
        until(lambda: daemon(mesh)["restarts"] == 1 and daemon(mesh)["doing"] is not None)
        until(lambda: daemon(mesh)["doing"] == "plan 1: loading")
        wanted = announced(mesh)
        assert "b" in wanted["e0"]
        held = {name: services | wanted[name] for name, services in BEFORE.items()}
        held["e0"].remove("b")
        until(lambda: placement(mesh) == held)  # all is loaded but what cannot be read, and nothing has left
        assert daemon(mesh)["doing"] == "plan 1: loading"
        gate.open()
        until(lambda: daemon(mesh)["changes"] == 1)
        assert placement(mesh) == wanted
    load.check()
    logs = mesh.run("logs", "placement", "--topology", str(mesh.topology)).stdout
    assert "goes on with interval" in logs
    assert "plan 1 is to be carried out: all engines know of it" in logs
    assert mesh.run("plan", str(mesh.topology)).stdout.endswith("plan 1 is carried out\n")


@pytest.mark.skipif(not is_night(), reason="it takes long: at night only")
def test_in_shadow_it_only_says_what_it_would_do_until_somebody_does_that(
    start_mesh: StartMesh, models: dict[str, Path]
):
    mesh = start_mesh(text(models, "shadow"))
    early = mesh.run("plan", str(mesh.topology), "apply")
    assert (early.returncode, len(early.stderr.splitlines())) == (1, 1)
    assert early.stderr.startswith("placement has found no plan: ")
    with Load(mesh, RATES, NUM_TOKENS) as load:
        until(lambda: daemon(mesh)["last_verdict"] == "replace")
        time.sleep(1.0)
        assert placement(mesh) == BEFORE
        told = json.loads(mesh.run("plan", str(mesh.topology), "--json").stdout)["daemon"]
        assert told["decision"]["verdict"] == "replace"
        shown = mesh.run("plan", str(mesh.topology)).stdout
        assert "shadow, changes nothing: `mesh plan apply` does" in shown
        assert "no plan was made since the engines started" in shown
        metrics = httpx.get(f"{mesh.admin_url}/metrics").text
        assert 'meshserve_placement_decisions_total{verdict="replace"} ' in metrics
        assert 'meshserve_placement_attainment{kind="proposed",service="b"} ' in metrics
        applied = mesh.run("plan", str(mesh.topology), "apply")
        assert (applied.returncode, applied.stderr) == (0, "")
        assert applied.stdout.endswith("plan 1 is carried out\n")
        wanted = announced(mesh)
        assert "b" in wanted["e0"]
        assert placement(mesh) == wanted
    load.check()
    until(lambda: daemon(mesh)["plan"] == 1)
