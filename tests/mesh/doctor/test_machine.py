"""The machine is judged by plain rules."""

import socket

import pytest

from mesh.doctor import machine
from mesh.doctor.findings import Finding, Health, Patient, worst
from mesh.topology.parse import load
from mesh.topology.schema import EngineSpec
from mesh.wire.control import Role

GIB = 2**30


def engine(**fields) -> EngineSpec:
    return EngineSpec("e", Role.MULTIPLEX, ("s",), **fields)


@pytest.mark.parametrize(
    ("finding", "health"),
    [
        (machine.cores(2, []), Health.OK),
        (machine.cores(2, [engine(threads=1), engine(threads=1)]), Health.OK),
        (machine.cores(2, [engine(threads=2), engine(threads=1)]), Health.SLOW),
        (machine.memory(4 * GIB, [engine(kv_memory_bytes=GIB)]), Health.OK),
        (machine.memory(4 * GIB, [engine(kv_memory_bytes=3 * GIB)]), Health.SLOW),
        (machine.memory(4 * GIB, [engine(kv_memory_bytes=5 * GIB)]), Health.BROKEN),
        (machine.memory(4 * GIB, [engine(kv_memory_bytes=5 * GIB, device="cuda")]), Health.OK),
        (machine.memory(GIB // 2, []), Health.SLOW),
        (machine.open_files(1024), Health.SLOW),
        (machine.open_files(65536), Health.OK),
        (machine.shared_memory(64 * 2**20), Health.SLOW),
        (machine.shared_memory(GIB), Health.OK),
    ],
)
def test_rules(finding: Finding, health: Health):
    assert (finding.health, bool(finding.mend)) == (health, health is not Health.OK)


def test_extras_that_are_not_there_are_no_fault():
    found = list(machine.extras({"torch": [], "gpu": ["cupy-cuda12x"], "dev": []}))
    assert [(one.about, one.health, one.text) for one in found] == [
        ("extra torch", Health.OK, "installed"),
        ("extra gpu", Health.OK, "not installed (pip install 'meshserve[gpu]' adds cupy-cuda12x)"),
    ]


def test_a_port_that_is_taken_is_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path / "run"))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        path = tmp_path / "t.toml"
        path.write_text(f'[services.s]\nmodel = "m"\n[engines.e]\n[gateways.g]\nport = {port}\n')
        taken = machine.ports(load(path), "local")
    assert taken.health is Health.BROKEN
    assert f"{port} is taken" in taken.text
    assert machine.ports(load(path), "local").text == f"127.0.0.1:{port}: free"


def test_a_glance_tells_only_what_is_not_well(monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 1)
    monkeypatch.setattr(machine, "available_memory", lambda: 64 * GIB)
    monkeypatch.setattr(machine, "_files", lambda: 65536)
    assert list(machine.glance(Patient())) == []


def test_the_worst_counts():
    found = [Finding("a", Health.SLOW, "x", "mend it"), Finding("b", Health.OK, "y")]
    assert (worst(found), worst([])) == (Health.SLOW, Health.OK)
    assert found[0].line == "a: x; mend it"
