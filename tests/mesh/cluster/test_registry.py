"""Where hosts are, and what they need."""

from pathlib import Path

from mesh.cluster.registry import Registry, demand, is_standby
from mesh.process.incarnations import PER_HOST
from mesh.topology.parse import load

TEXT = """
[cluster]
on = "ray"
[hosts.front]
[hosts.far]
count = 2
memory = "2GiB"
[hosts.given]
cpus = 7
gpus = 2
[services.s]
model = "m"
[engines.e]
host = "far"
threads = 3
count = 2
standby = 1
[engines.f]
host = "given"
[gateways.g]
host = "front"
[placement]
host = "front"
mode = "off"
[scaling]
"""


def test_each_incarnation_of_a_host_is_newer_than_all_before_it():
    registry = Registry(1000)
    first = registry.came_up("a", "10.0.0.1", 5600, "*")
    other = registry.came_up("b", "10.0.0.2", 5600, "*")
    again = registry.came_up("a", "10.0.0.3", 5600, "*")
    assert (first.incarnation, other.incarnation, again.incarnation) == tuple(1000 + n * PER_HOST for n in (1, 2, 3))
    assert registry.place("a") == again
    assert sorted(place.name for place in registry.places()) == ["a", "b"]


def test_a_host_that_left_is_nowhere_and_everybody_hears_of_it():
    registry = Registry(1000)
    place = registry.came_up("a", "10.0.0.1", 5600, "*")
    registry.left("a")
    registry.left("unknown")
    assert registry.place("a") is None
    (told,) = registry.places()
    assert told.is_away
    assert told.incarnation > place.incarnation
    assert not registry.came_up("a", "10.0.0.1", 5600, "*").is_away


def test_a_registry_goes_on_behind_those_that_it_is_given():
    place = Registry(5_000_000_000).came_up("a", "10.0.0.1", 5600, "*")
    assert Registry(1000, [place]).came_up("b", "10.0.0.2", 5600, "*").incarnation > place.incarnation


def test_a_host_reserves_what_its_table_says_else_what_its_processes_use():
    topology = load(Path("t.toml"), TEXT)
    hosts = {host.name: host for host in topology.hosts}
    assert demand(topology, hosts["front"]) == {"CPU": 2.0}
    assert demand(topology, hosts["far-1"]) == {"CPU": 3.0, "memory": float(2 * 2**30)}
    assert demand(topology, hosts["given"]) == {"CPU": 7.0, "GPU": 2.0}
    assert [is_standby(topology, host) for host in hosts] == [False, False, True, False]
