"""Hosts are the nodes of a job: by Slurm's environment alone, and with real processes that find each other."""

import os
import subprocess
import sys

import pytest

from mesh.cluster.slurm import expand_nodes, host_of_task, places_file, places_here, places_in_job
from mesh.errors import UserError
from mesh.process.ties import write_places
from mesh.sockets.curve import make_key_file
from mesh.topology.parse import load

TOPOLOGY = """\
[mesh]
curve_key = "mesh.key"
[cluster]
on = "slurm"
[services.tiny]
model = "hf:org/tiny"
[hosts.front]
[hosts.worker]
count = 2
base_port = 5700
[gateways.gateway]
host = "front"
[engines.main]
host = "worker"
count = 2
"""
JOB = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_PROCID": "1"}


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(TOPOLOGY)
    return load(path)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("login", ["login"]),
        ("a,b", ["a", "b"]),
        ("gpu[01-03,7],login", ["gpu01", "gpu02", "gpu03", "gpu7", "login"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("rack[1-2]node[1-2]", ["rack1node1", "rack1node2", "rack2node1", "rack2node2"]),
        ("a[1]-ib,b[2-3].example", ["a1-ib", "b2.example", "b3.example"]),
    ],
)
def test_names_of_nodes_are_read_in_their_short_form(text, nodes):
    assert expand_nodes(text) == nodes


def test_nodes_are_the_hosts_in_their_order(topology):
    places = places_in_job(topology, JOB)
    assert [(place.name, place.address, place.base_port, place.bind) for place in places] == [
        ("front", "n1", 5600, "*"),
        ("worker-0", "n2", 5700, "*"),
        ("worker-1", "n3", 5700, "*"),
    ]
    assert host_of_task(topology, JOB) == "worker-0"


def test_a_job_that_starts_again_has_newer_processes(topology):
    first, second = (places_in_job(topology, {**JOB, "SLURM_RESTART_COUNT": count})[0] for count in ("0", "1"))
    assert second.incarnation > first.incarnation


@pytest.mark.parametrize(
    ("environment", "fault"),
    [
        ({}, "there is no SLURM_JOB_NODELIST here"),
        ({"SLURM_JOB_NODELIST": "n[1-2]"}, "the job has 2 nodes for 3 hosts; ask for --nodes=3"),
    ],
)
def test_what_a_job_lacks_is_one_clear_line(topology, environment, fault):
    with pytest.raises(UserError, match=fault):
        places_in_job(topology, environment)


def test_commands_of_a_step_know_the_nodes_of_the_job(topology, tmp_path):
    assert places_here(tmp_path) == []
    places = places_in_job(topology, JOB)
    write_places(places_file(tmp_path, "worker-0"), places)
    assert places_here(tmp_path) == places


def test_a_task_too_many_is_told(topology):
    with pytest.raises(UserError, match="this is task 3"):
        host_of_task(topology, {**JOB, "SLURM_PROCID": "3"})


def test_up_outside_of_a_job_is_one_line(topology, tmp_path):
    make_key_file(tmp_path / "mesh.key")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    command = [sys.executable, "-m", "mesh.cli", "up", str(topology.path), "--host", "auto"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "its hosts are nodes of a job" in done.stderr
