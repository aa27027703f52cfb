"""The topologies of meshes that are harmed are ones that `mesh up` takes."""

import os
import subprocess
import time

import pytest

from engines.costs.named_profiles import load_profile
from mesh.access.key_file import read_keys
from tests.tools.harm.meshes import (
    EXPIRED,
    HONEST,
    HOSTS,
    KEYED,
    KEYS,
    MESH_NAME,
    MODEL,
    NEARLY_RIGHT,
    RELAYED,
    TOPOLOGIES,
    WORDY_MODEL,
    deploy,
    key_path,
    kinds,
)


@pytest.mark.parametrize(("programme", "kind"), [(one, kind) for one in TOPOLOGIES for kind in kinds(one)])
def test_every_topology_is_valid(tmp_path, programme, kind):
    deployment = deploy(tmp_path, programme, kind)
    topology = deployment.topology
    engines = TOPOLOGIES[programme][kind].get("engines", {}) | TOPOLOGIES[programme]["all"]["engines"]
    assert {engine.id: str(engine.role) for engine in topology.engines} == {
        name: engine.get("role", "multiplex") for name, engine in engines.items()
    }
    assert {process.id for process in topology.processes} == set(deployment.supervised)
    assert {process.host for process in topology.processes} == set(deployment.hosts)
    assert (topology.curve_key is not None) == (len(deployment.hosts) > 1)
    assert topology.service(MODEL).aliases == (WORDY_MODEL,)
    is_modelled = programme != "siege"
    assert bool(topology.transfer.checksum) == is_modelled
    assert all(load_profile(engine.profile) for engine in topology.engines if is_modelled)


def test_engines_have_hosts_of_their_own(tmp_path):
    topology = deploy(tmp_path, "chaos", HOSTS).topology
    assert all(engine.host == engine.id for engine in topology.engines)
    assert len({gateway.host for gateway in topology.gateways}) == 1


def test_a_relayed_engine_has_a_runtime_folder_of_its_own(tmp_path):
    deployment = deploy(tmp_path, "chaos", RELAYED)
    (tmp_path / "tell.py").write_text("import os, sys; print(os.environ['MESHSERVE_RUNTIME_DIR'], *sys.argv[1:])")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    script = (tmp_path / "python-decode-0").read_text().replace("tests.tools.harm.faults.hanging", "tell")
    (tmp_path / "told").write_text(script)
    command = ["sh", str(tmp_path / "told"), "-m", "engines", "--id", "decode-0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100, env=environment)
    said, hangs, *arguments = done.stdout.split()
    assert arguments == ["-m", "engines", "--id", "decode-0"]
    assert hangs == str(deployment.hangs / "decode-0")
    assert str(deployment.folder("decode-0")) == f"{said}/{MESH_NAME}"
    assert deployment.folder("first") == deployment.runtime / MESH_NAME
    assert deployment.topology.transfer.transport == "tcp"


def test_only_hashes_of_keys_are_where_the_mesh_is(tmp_path):
    deploy(tmp_path, "siege", KEYED)
    honest = key_path(tmp_path, HONEST).read_text()
    keys = {key.name: key for key in read_keys(tmp_path / KEYS)}
    assert keys[HONEST].matches(honest.partition("-")[2].partition("-")[2])
    assert keys[EXPIRED].has_expired(time.time())
    assert key_path(tmp_path, NEARLY_RIGHT).read_text()[:-1] == honest[:-1]
    assert key_path(tmp_path, NEARLY_RIGHT).read_text() != honest
    assert honest not in (tmp_path / KEYS).read_text()
