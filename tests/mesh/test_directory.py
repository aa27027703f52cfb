from pathlib import Path

import pytest

from mesh.directory import Directory, directory, num_ports
from mesh.topology.parse import load
from mesh.wire.hosts import HostPlace

TEXT = """\
[mesh]
curve_key = "key"
[services.tiny]
model = "models/tiny"
[hosts.left]
address = "10.0.0.1"
base_port = 7000
[hosts.right]
address = "right.example"
bind = "*"
[gateways.gateway]
host = "left"
[engines.main]
host = "right"
"""


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(TEXT)
    return load(path)


def test_ports_of_a_host_count_up_from_its_base_port(topology):
    found = directory(topology)
    assert found["supervisor-left"].inbox == "tcp://10.0.0.1:7000"
    assert found["gateway"].inbox == "tcp://10.0.0.1:7002"
    assert found["gateway~"].broadcast == "tcp://10.0.0.1:7005"
    assert num_ports(topology, "left") == 6


def test_a_process_may_listen_elsewhere_than_where_its_peers_find_it(topology):
    found = directory(topology)
    assert found["main"].inbox == "tcp://right.example:5602"
    assert found.listening("main").inbox == "tcp://*:5602"
    assert found.listening("gateway") == found["gateway"]


def test_of_two_places_of_a_host_the_newer_one_counts(topology):
    found = directory(topology, [HostPlace("right", "10.0.0.2", 5600, "10.0.0.2", 5)])
    assert found.moved([HostPlace("right", "10.0.0.3", 6000, "*", 6)]) == ["supervisor-right", "main"]
    assert found["main"].inbox == "tcp://10.0.0.3:6002"
    assert found.moved([HostPlace("right", "10.0.0.2", 5600, "10.0.0.2", 5)]) == []
    assert found["main"].inbox == "tcp://10.0.0.3:6002"


def test_whoever_is_nowhere_yet_is_left_out_until_somebody_says_where(topology):
    found = directory(topology, [])
    assert found.get("main") is None
    with pytest.raises(KeyError):
        found.listening("main")
    assert found.moved([HostPlace("left", "10.0.0.1", 5600, "*", 1)]) == ["supervisor-left", "gateway", "gateway~"]
    assert "main" not in found
    assert "gateway" in found


def test_a_host_that_comes_back_where_it_was_moves_nobody(topology):
    found = directory(topology, [HostPlace("right", "10.0.0.2", 5600, "*", 5)])
    assert found.moved([HostPlace("right", "10.0.0.2", 5600, "*", 6)]) == []
    assert found.place("right").incarnation == 6


def test_a_host_that_is_given_back_is_nowhere_until_it_comes_up_again(topology):
    place = HostPlace("right", "10.0.0.2", 5600, "*", 5)
    found = directory(topology, [place])
    assert found.away() == ["left"]
    assert found.moved([HostPlace("right", "10.0.0.2", 5600, "*", 6, is_away=True)]) == ["supervisor-right", "main"]
    assert "main" not in found
    assert found.away() == ["left", "right"]
    assert found.moved([place]) == []
    assert found.moved([HostPlace("right", "10.0.0.2", 5600, "*", 7)]) == ["supervisor-right", "main"]
    assert found.away() == ["left"]


def test_hosts_that_the_topology_does_not_have_are_ignored(topology):
    found = directory(topology)
    assert found.moved([HostPlace("middle", "10.0.0.9", 5600, "*", 6)]) == []


def test_the_word_of_a_process_s_own_supervisor_counts(topology):
    found = directory(topology)
    assert found.supervisor_of("main") == "supervisor-right"
    assert found.supervisor_of("cli-7") is None
    assert Directory.fixed({}).supervisor_of("main") is None


def test_a_mesh_on_one_host_listens_at_local_sockets(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text('[services.tiny]\nmodel = "models/tiny"\n[engines.main]\n')
    found = directory(load(path))
    assert found["main"].inbox.startswith("ipc://")
    assert found.listening("main") == found["main"]
    assert Path(found["main"].inbox.removeprefix("ipc://")).name == "main.inbox"
