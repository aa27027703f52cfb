"""Whom Prometheus is told to scrape."""

from pathlib import Path

import pytest

from mesh.topology.parse import load
from router.api.targets import Target, targets_of
from tests.router.cluster import make_status

TOPOLOGY = """
[mesh]
name = "shop"
curve_key = "mesh.key"
[hosts.a]
address = "10.0.0.1"
[hosts.b]
address = "fd00::2"
[services.chat]
model = "."
[engines.decode]
host = ["b"]
role = "decode"
[engines.prefill]
host = ["a"]
role = "prefill"
[gateways.front]
host = ["a"]
admin_address = "0.0.0.0"
[gateways.local]
host = ["b"]
port = 8001
[access]
open = true
"""


@pytest.fixture(scope="module")
def topology():
    text = TOPOLOGY.replace('["a"]', '"a"').replace('["b"]', '"b"')
    return load(Path("mesh.toml"), text)


def test_gateways_and_engines_are_told_with_names_that_stay(topology):
    statuses = {
        "decode": make_status("decode", metrics_url="http://[fd00::2]:9401/metrics"),
        "prefill": make_status("prefill"),  # tells no metrics
    }
    urls = {"front": "http://127.0.0.1:9000", "local": "http://127.0.0.1:9001"}
    told = targets_of(topology, urls, statuses, lambda host: topology.host(host).address)
    assert list(told) == [
        Target(("10.0.0.1:9000",), {"instance": "front", "kind": "gateway", "mesh": "shop"}),
        Target(("127.0.0.1:9001",), {"instance": "local", "kind": "gateway", "mesh": "shop"}),
        Target(("[fd00::2]:9401",), {"instance": "decode", "kind": "engine", "mesh": "shop"}),
    ]


async def test_targets_are_served_to_operators_only(gateway):
    assert (await gateway.admin.get("/mesh/targets")).json() == []
    assert (await gateway.client.get("/mesh/targets")).status_code == 404
