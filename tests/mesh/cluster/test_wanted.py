"""Which hosts a cluster's engine is to hold."""

from pathlib import Path

import pytest

from mesh.cluster.wanted import IDLE_S, WantedHosts
from mesh.topology.parse import load
from mesh.topology.schema import Topology

TEXT = """
[cluster]
on = "ray"
[hosts.front]
[hosts.far]
count = 3
[services.s]
model = "m"
[engines.e]
host = "far"
count = 3
standby = 1
[gateways.g]
host = "front"
"""
ALWAYS = ["front", "far-0", "far-1"]


@pytest.fixture
def topology() -> Topology:
    return load(Path("t.toml"), TEXT)


def test_hosts_on_standby_are_wanted_for_a_while_once_asked_for(topology: Topology):
    wanted = WantedHosts(topology, [])
    assert wanted.hosts(0.0) == ALWAYS
    wanted.ask("e-2", 1.0)
    wanted.ask("nobody", 1.0)
    assert wanted.hosts(1.0) == [*ALWAYS, "far-2"]
    wanted.ask("e-2", 5.0)
    assert wanted.hosts(4.9 + IDLE_S) == [*ALWAYS, "far-2"]
    assert wanted.hosts(5.0 + IDLE_S) == ALWAYS


def test_a_host_is_wanted_while_it_starts_and_serves_and_also_while_it_is_silent(topology: Topology):
    wanted = WantedHosts(topology, [])
    wanted.ask("e-2", 0.0)
    wanted.hear("far-2", "starting", ["standby"], 1.0)
    assert "far-2" in wanted.hosts(1e6)
    wanted.hear("far-2", "ready", ["running"], 2.0)
    assert "far-2" in wanted.hosts(1e6)


def test_a_host_whose_engines_have_ended_is_wanted_no_more_after_a_while(topology: Topology):
    wanted = WantedHosts(topology, ["far-2"])
    for now in (10.0, 11.0):
        wanted.hear("far-0", "ready", ["stopped"], now)
        wanted.hear("far-2", "ready", ["standby"], now)
    assert wanted.hosts(9.9 + IDLE_S) == [*ALWAYS, "far-2"]
    assert wanted.hosts(10.0 + IDLE_S) == ["front", "far-1"]
    wanted.ask("e-0", 60.0)
    assert wanted.hosts(60.0) == ALWAYS


def test_an_engine_that_begins_again_keeps_its_host(topology: Topology):
    wanted = WantedHosts(topology, [])
    wanted.hear("far-0", "ready", ["stopped"], 0.0)
    wanted.hear("far-0", "ready", ["starting"], 1.0)
    assert wanted.hosts(1e6) == ALWAYS
