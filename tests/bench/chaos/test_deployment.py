"""The topologies that the harness writes are ones that `mesh up` takes."""

import os
import subprocess

import pytest

from bench.chaos import deployment
from bench.chaos.deployment import MODEL, WORDY_MODEL, Backend
from bench.models.tiny_llama import write_tiny_model
from engines.costs.profiles import load_profile
from mesh.topology.parse import load
from mesh.wire.control import Role

WRITERS = [
    deployment.plain,
    deployment.across_hosts,
    deployment.placed,
    deployment.relayed,
    deployment.reference,
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("backend", list(Backend))
@pytest.mark.parametrize("write", WRITERS)
def test_every_topology_is_valid(tmp_path, model, write, backend):
    plan = write(tmp_path, model, backend)
    topology = load(plan.path)
    assert tuple(engine.id for engine in topology.engines) == plan.engines
    assert tuple(gateway.id for gateway in topology.gateways) == plan.gateways
    assert tuple(gateway.port for gateway in topology.gateways) == plan.ports
    assert {host.name for host in topology.hosts} == set(plan.hosts)
    assert {process.id for process in topology.processes} == set(plan.supervised)
    assert topology.service(MODEL).aliases == (WORDY_MODEL,)
    assert topology.transfer.checksum
    assert {engine.backend for engine in topology.engines} == {backend}
    if backend is Backend.SIMULATED:
        assert all(load_profile(engine.profile) for engine in topology.engines)


def test_engines_have_hosts_of_their_own(tmp_path, model):
    topology = load(deployment.across_hosts(tmp_path, model, Backend.SIMULATED).path)
    assert {engine.id: engine.host for engine in topology.engines} == {name: name for name in deployment.ENGINES}
    assert {gateway.host for gateway in topology.gateways} == {deployment.FRONT}
    assert topology.curve_key.exists()


def test_a_relayed_engine_has_a_runtime_folder_of_its_own(tmp_path, model):
    plan = deployment.relayed(tmp_path, model, Backend.SIMULATED)
    engine = load(plan.path).engine("decode-0")
    (tmp_path / "tell.py").write_text("import os, sys; print(os.environ['MESHSERVE_RUNTIME_DIR'], *sys.argv[1:])")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [engine.python, "-m", "tell", "--id", "decode-0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100, env=environment)
    said, *arguments = done.stdout.split()
    assert arguments == ["--id", "decode-0"]
    assert str(plan.folder("decode-0")) == f"{said}/{deployment.MESH_NAME}"
    assert plan.folder("first") == plan.runtime / deployment.MESH_NAME
    assert load(plan.path).transfer.transport == "tcp"


def test_roles_are_those_of_a_disaggregated_mesh(tmp_path, model):
    topology = load(deployment.plain(tmp_path, model, Backend.SIMULATED).path)
    assert [engine.role for engine in topology.engines] == [Role.PREFILL, Role.MULTIPLEX, Role.MULTIPLEX]
