"""The topologies that scenarios run on are ones that `mesh up` takes."""

import os
import subprocess

import pytest

from bench.harm.chaos.meshes import (
    ENGINES,
    FRONT,
    HOSTS,
    REFERENCE,
    RELAYED,
    SHAPES,
    WORDY_MODEL,
    deploy,
)
from bench.harm.deployment import MESH_NAME, MODEL
from bench.harm.harm import PLAIN
from bench.models.tiny_llama import write_tiny_model
from engines.costs.profiles import load_profile
from mesh.wire.control import Role


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("shape", [*SHAPES.values(), REFERENCE], ids=[*SHAPES, "reference"])
def test_every_topology_is_valid(tmp_path, model, shape):
    deployment = deploy(tmp_path, model, shape)
    topology = deployment.topology
    assert deployment.engines == tuple(shape.engines)
    assert deployment.gateways == shape.gateways
    assert {process.id for process in topology.processes} == set(deployment.supervised)
    assert {process.host for process in topology.processes} == set(deployment.hosts)
    assert topology.service(MODEL).aliases == (WORDY_MODEL,)
    assert topology.transfer.checksum
    assert all(load_profile(engine.profile) for engine in topology.engines)


def test_engines_have_hosts_of_their_own(tmp_path, model):
    topology = deploy(tmp_path, model, SHAPES[HOSTS]).topology
    assert {engine.id: engine.host for engine in topology.engines} == {name: name for name in ENGINES}
    assert {gateway.host for gateway in topology.gateways} == {FRONT}
    assert topology.curve_key.exists()


def test_a_relayed_engine_has_a_runtime_folder_of_its_own(tmp_path, model):
    deployment = deploy(tmp_path, model, SHAPES[RELAYED])
    (tmp_path / "tell.py").write_text("import os, sys; print(os.environ['MESHSERVE_RUNTIME_DIR'], *sys.argv[1:])")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    script = (tmp_path / "python-decode-0").read_text().replace("bench.harm.chaos.hanging", "tell")
    (tmp_path / "told").write_text(script)
    command = ["sh", str(tmp_path / "told"), "-m", "engines", "--id", "decode-0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100, env=environment)
    said, hangs, *arguments = done.stdout.split()
    assert arguments == ["-m", "engines", "--id", "decode-0"]
    assert hangs == str(deployment.hangs / "decode-0")
    assert str(deployment.folder("decode-0")) == f"{said}/{MESH_NAME}"
    assert deployment.folder("first") == deployment.runtime / MESH_NAME
    assert deployment.topology.transfer.transport == "tcp"


def test_roles_are_those_of_a_disaggregated_mesh(tmp_path, model):
    topology = deploy(tmp_path, model, SHAPES[PLAIN]).topology
    assert [engine.role for engine in topology.engines] == [Role.PREFILL, Role.MULTIPLEX, Role.MULTIPLEX]
