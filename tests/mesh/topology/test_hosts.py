import pytest

from mesh.topology.parse import load
from mesh.topology.report import TopologyError
from mesh.topology.schema import ClusterEngine, ClusterSpec, HostSpec

SERVICE = '[services.tiny]\nmodel = "models/tiny"\n'
ON_RAY = f"""{SERVICE}
[cluster]
on = "ray"
[hosts.front]
[hosts.worker]
count = 3
cpus = 2
gpus = 1
memory = "4GiB"
labels = {{ zone = "a" }}
[gateways.gateway]
host = "front"
[engines.main]
host = "worker"
count = 5
standby = 2
"""


@pytest.fixture
def read(tmp_path):
    def read_topology(text):
        path = tmp_path / "topology.toml"
        path.write_text(text)
        return load(path)

    return read_topology


def fault(read, text):
    with pytest.raises(TopologyError) as found:
        read(text)
    return str(found.value)


def test_hosts_of_one_table_are_counted_and_need_the_same(read):
    topology = read(ON_RAY)
    assert topology.cluster == ClusterSpec(ClusterEngine.RAY)
    assert [host.name for host in topology.hosts] == ["front", "worker-0", "worker-1", "worker-2"]
    assert topology.host("worker-1") == HostSpec("worker-1", "", 5600, None, "worker", 2, 1, 4 * 2**30, {"zone": "a"})


def test_processes_take_turns_on_the_hosts_of_the_table_that_they_name(read):
    topology = read(ON_RAY)
    assert [engine.host for engine in topology.engines] == ["worker-0", "worker-1", "worker-2", "worker-0", "worker-1"]
    assert topology.gateways[0].host == "front"


def test_with_one_table_of_hosts_nobody_needs_to_name_it(read):
    topology = read(f'{SERVICE}[cluster]\non = "ray"\n[hosts.node]\ncount = 2\n[engines.main]\ncount = 2\n[placement]')
    assert [engine.host for engine in topology.engines] == ["node-0", "node-1"]
    assert topology.gateways[0].host == "node-0"
    assert topology.placement.host == "node-0"


def test_a_mesh_on_ray_needs_no_key_file_and_one_on_slurm_does(read):
    assert read(ON_RAY).makes_key
    assert "curve_key" in fault(read, ON_RAY.replace('"ray"', '"slurm"'))


def test_a_host_that_a_cluster_places_has_no_address_of_its_own(read):
    text = ON_RAY.replace("[hosts.front]", '[hosts.front]\naddress = "10.0.0.1"')
    assert "hosts.front.address: ray says where it is" in fault(read, text)


@pytest.mark.parametrize("line", ["count = 2", "cpus = 1", "gpus = 1", 'memory = "1GiB"', 'labels = { zone = "a" }'])
def test_what_is_for_a_cluster_is_refused_without_one(read, line):
    text = f'{SERVICE}[engines.main]\n[hosts.left]\naddress = "10.0.0.1"\n{line}\n'
    assert f"hosts.left.{line.partition(' ')[0]}" in fault(read, text)


def test_what_to_listen_on_is_an_address_of_the_machine(read):
    text = f'{SERVICE}[engines.main]\n[hosts.left]\naddress = "node.example"\nbind = "WHAT"\n'
    assert read(text.replace("WHAT", "*")).hosts[0].bind == "*"
    assert read(text.replace("WHAT", "0.0.0.0")).hosts[0].bind == "0.0.0.0"
    assert "hosts.left.bind: 'node.example' is no IP address" in fault(read, text.replace("WHAT", "node.example"))


def test_a_cluster_names_the_engine_that_holds_the_hosts(read):
    assert "cluster: has no on" in fault(read, f"{SERVICE}[engines.main]\n[cluster]\n")
    assert "cluster.on: 'mesos' is not a cluster's engine" in fault(
        read, f'{SERVICE}[engines.main]\n[cluster]\non = "mesos"\n'
    )


def test_several_processes_of_a_named_host_stay_there(read):
    topology = read(f'{SERVICE}[hosts.left]\naddress = "10.0.0.1"\n[engines.main]\ncount = 2\nhost = "left"\n')
    assert [engine.host for engine in topology.engines] == ["left", "left"]


def test_hosts_with_addresses_are_counted_where_an_index_tells_them_apart(read):
    hosts = '[mesh]\ncurve_key = "k"\n[hosts.node]\ncount = 2\naddress = "node-WHAT.example"\n'
    text = f"{SERVICE}{hosts}[engines.main]\ncount = 2\n"
    topology = read(text.replace("WHAT", "{index}"))
    assert [host.address for host in topology.hosts] == ["node-0.example", "node-1.example"]
    assert [engine.host for engine in topology.engines] == ["node-0", "node-1"]
    assert "hosts.node.count: hosts of one table have different addresses" in fault(read, text)


def test_ports_of_gateways_count_up_on_each_host(read):
    topology = read(
        f'{SERVICE}[cluster]\non = "ray"\n[hosts.node]\ncount = 2\n[engines.main]\n[gateways.front]\ncount = 3\n'
    )
    assert [(gateway.host, gateway.port) for gateway in topology.gateways] == [
        ("node-0", 8000),
        ("node-1", 8000),
        ("node-0", 8001),
    ]
