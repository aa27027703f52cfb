import tomllib
from pathlib import Path

import pytest

from mesh.access.keys import KeyLimits
from mesh.rules import Lateness, ScalingRule
from mesh.topology.parse import load
from mesh.topology.report import TopologyError
from mesh.topology.schema import (
    AccessSpec,
    EngineSpec,
    GatewaySpec,
    HostSpec,
    ScalingSpec,
    Scheduling,
    Slo,
)
from mesh.wire.control import Role

DEPLOY = Path(__file__).parents[3] / "deploy"
SMALL = """\
[services.tiny]
model = "models/tiny"
[engines.main]
"""


@pytest.fixture
def write(tmp_path):
    def write_topology(text: str, name: str = "topology.toml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write_topology


def test_a_few_lines_are_enough(write, tmp_path):
    topology = load(write(SMALL, "small one.toml"))
    assert topology.name == "small-one"
    assert topology.service("tiny").model == str(tmp_path / "models/tiny")
    assert topology.service("tiny").slo == Slo(5.0, 0.25, 0.9)
    assert topology.engines == (EngineSpec("main", Role.MULTIPLEX, ("tiny",), pool="main"),)
    assert topology.gateways == (GatewaySpec("gateway"),)
    assert topology.hosts == (HostSpec("local", "127.0.0.1"),)


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.toml")), ids=lambda path: path.stem)
def test_the_shipped_topologies_are_right(path):
    assert load(path).name == path.stem


def test_the_default_topology_is_what_the_readme_promises():
    topology = load(DEPLOY / "topology.toml")
    assert [(engine.id, engine.role) for engine in topology.engines] == [
        ("prefill", Role.PREFILL),
        ("decode", Role.MULTIPLEX),
    ]
    assert [(gateway.address, gateway.port) for gateway in topology.gateways] == [("127.0.0.1", 8000)]


def test_every_key(write, tmp_path, monkeypatch):
    monkeypatch.setenv("MODELS", "/srv/models")
    topology = load(
        write("""\
[mesh]
name = "prod"
log_level = "debug"
curve_key = "mesh.key"
heartbeat_ms = 100
lease_ms = 900
reply_ms = 700
drain_s = 5
start_s = 6.5
[hosts.a]
address = "10.0.0.1"
base_port = 6000
[hosts.b]
address = "10.0.0.2"
[services."org/big"]
model = "$MODELS/big"
ttft_ms = 2000
tpot_ms = 100
attainment = 0.95
dtype = "bfloat16"
max_context = 4096
max_output_tokens = 512
temperature = 0.2
top_p = 0.9
priority = 2
aliases = ["big"]
usual_prompt = 2000
usual_answer = 100
late = "reject"
max_priority = 4
min_ttft_ms = 500
min_tpot_ms = 50
[engines.decode]
role = "decode"
services = ["org/big"]
count = 2
standby = 1
at_least = 1
host = "a"
backend = "simulated"
device = "cuda:1"
threads = 4
kv_memory = "1.5GiB"
block_size = 32
max_running = 8
max_waiting = 9
chunk_tokens = 128
offload_memory = "2GiB"
scheduling = "db"
starvation_ms = 30000
strict_phases = true
migrates_on_drain = false
kv_quotas = { "org/big" = 0.75 }
profile = "profiles/big.toml"
python = "venv/bin/python"
[engines.prefill]
role = "prefill"
host = "b"
[access]
keys = "keys.json"
requests_per_minute = 60
tokens_per_minute = 9000
in_flight = 4
max_priority = 3
min_ttft_ms = 250
min_tpot_ms = 20
[gateways.front]
count = 2
host = "b"
address = "0.0.0.0"
port = 9000
max_body = "1MB"
max_images = 3
max_image = "1MiB"
max_image_pixels = 1000
max_requests = 10
max_waiting = 5
recording = "days/{id}.jsonl"
[policy]
name = "least_loaded"
slack = 0.5
[placement]
host = "a"
mode = "off"
[scaling]
rule = "freeness"
interval_ms = 250
margin = 0.2
down_after_s = 90
judge_s = 20
clears_s = 5
utilisation = 0.5
low_freeness = 10
high_freeness = 60
[transfer]
transport = "tcp"
checksum = true
deadline_ms = 2500
""")
    )
    assert topology.name == "prod"
    assert topology.scaling == ScalingSpec(ScalingRule.FREENESS, 0.25, 0.2, 90.0, 20.0, 5.0, 0.5, 10.0, 60.0)
    assert not topology.engine("decode-0").is_standby
    assert topology.curve_key == tmp_path / "mesh.key"
    assert topology.timing.heartbeat_s == 0.1
    assert topology.timing.lease_s == 0.9
    assert topology.timing.drain_s == 5.0
    assert topology.service("org/big").model == "/srv/models/big"
    assert topology.service("org/big").aliases == ("big",)
    assert topology.service("org/big").late is Lateness.REJECT
    assert (topology.service("org/big").usual_prompt, topology.service("org/big").usual_answer) == (2000, 100)
    assert (topology.service("org/big").temperature, topology.service("org/big").top_p) == (0.2, 0.9)
    assert topology.engine("decode-1") == EngineSpec(
        id="decode-1",
        role=Role.DECODE,
        services=("org/big",),
        pool="decode",
        is_standby=True,
        host="a",
        backend="simulated",
        device="cuda:1",
        threads=4,
        kv_memory_bytes=3 * 2**29,
        block_size=32,
        max_running=8,
        max_waiting=9,
        chunk_tokens=128,
        offload_memory_bytes=2 * 2**30,
        scheduling=Scheduling.DB,
        starvation_s=30.0,
        strict_phases=True,
        migrates_on_drain=False,
        kv_quotas={"org/big": 0.75},
        profile=str(tmp_path / "profiles/big.toml"),
        python=str(tmp_path / "venv/bin/python"),
    )
    assert topology.gateway("front-1") == GatewaySpec(
        "front-1", "b", "0.0.0.0", 9001, 10**6, 10, 5, tmp_path / "days/front-1.jsonl",
        max_images=3, max_image_bytes=2**20, max_image_pixels=1000,
    )  # fmt: skip
    limits = KeyLimits(60, 9000, 4, None, 3, 250.0, 20.0)
    assert topology.access == AccessSpec(tmp_path / "keys.json", open=False, defaults=limits)
    assert topology.policy.parameters == {"slack": 0.5}
    assert (topology.transfer.transport, topology.transfer.checksum, topology.transfer.deadline_s) == ("tcp", True, 2.5)


FAULTS = tomllib.loads((Path(__file__).parent / "faults.toml").read_text())["case"]


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case["fault"])
def test_a_fault_is_named_with_its_line_and_what_would_be_right(write, case):
    path = write(case["text"])
    with pytest.raises(TopologyError) as caught:
        load(path)
    assert f"{path}:{case['fault']}" in caught.value.faults


def test_all_faults_come_at_once_in_the_order_of_the_file(write):
    path = write('[services.a]\nmodel = 1\n[engines.e]\nrole = "x"\nthreads = 0\n[gateways.g]\nport = "p"\n')
    with pytest.raises(TopologyError) as caught:
        load(path)
    assert [fault.removeprefix(f"{path}:").split(":")[0] for fault in caught.value.faults] == ["2", "4", "5", "7"]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("[services.a]\nmodel = \n", "2: not valid TOML: Invalid value"),
        ("[services.a]\nmodel = 'x'\nmodel = 'y'\n", "3: not valid TOML: Cannot overwrite a value"),
        ("[services.a\n", "1: not valid TOML: Expected ']'"),
    ],
)
def test_a_syntax_error_is_named_with_its_line(write, text, start):
    path = write(text)
    with pytest.raises(TopologyError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{start}")


@pytest.mark.parametrize("address", ["10.0.0.5", "::1", "0.0.0.0", "localhost", "gpu-1.cluster.local."])
def test_a_gateway_listens_at_an_address_or_a_name(write, address):
    open_access = "[access]\nopen = true\n"
    made = load(write(f'{open_access}[services.a]\nmodel = "m"\n[engines.e]\n[gateways.g]\naddress = "{address}"\n'))
    assert made.gateways[0].address == address


def test_what_is_no_text_is_one_line(tmp_path):
    with pytest.raises(TopologyError, match=r"cannot be read: Is a directory$"):
        load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    with pytest.raises(TopologyError, match=r"latin\.toml: is no text in UTF-8: byte 2 does not fit"):
        load(tmp_path / "latin.toml")


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(TopologyError, match=r"none\.toml: no such file; name the TOML file that describes"):
        load(tmp_path / "none.toml")


def test_several_hosts_with_a_key(write):
    topology = load(
        write(
            '[mesh]\ncurve_key = "k"\n[hosts.a]\naddress = "10.0.0.1"\n[hosts.b]\naddress = "10.0.0.2"\n'
            '[services.s]\nmodel = "m"\n[engines.e]\nhost = "a"\n[gateways.g]\nhost = "b"\n'
        )
    )
    assert [host.name for host in topology.hosts] == ["a", "b"]
