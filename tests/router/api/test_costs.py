"""What a gateway tells of its engines' costs, and who listens."""

from pathlib import Path

import msgspec
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from engines.costs.linear import prefill_s
from mesh.topology.parse import load
from router.api.costs import CostRoutes, LearntRow, costs_of
from router.profiling.passive import is_known, profile_of_row
from router.profiling.written import Stated
from tests.router.cluster import make_status

TOPOLOGY = """
[services.large]
model = "."
[engines.decode]
"""


def test_costs_of_all_engines_that_are_heard():
    topology = load(Path("mesh.toml"), TOPOLOGY)
    rows = list(costs_of(topology, {"decode": make_status("decode")}))
    assert [row.engine for row in rows] == ["decode"] * len(rows)
    assert rows
    app = FastAPI()
    CostRoutes(lambda: rows).install(app)
    answer = TestClient(app).get("/mesh/costs")
    assert msgspec.json.decode(answer.content, type=list[LearntRow]) == rows


@pytest.fixture
def row():
    topology = load(Path("mesh.toml"), TOPOLOGY)
    [row, *_] = costs_of(topology, {"decode": make_status("decode")})
    return row


def test_what_was_learnt_becomes_a_profile(row):
    profile = profile_of_row(row, "http://127.0.0.1:9000", Stated()).profile()
    assert prefill_s(profile.prefill, 100) > 0
    assert profile.kv_memory_bytes == profile.kv_bytes_per_token * row.kv_tokens
    assert profile.server is None


def test_a_server_that_is_not_ours_says_what_its_gateway_cannot_see(row):
    server = msgspec.structs.replace(row, url="http://gpu-1:8000", model="m")
    traits = profile_of_row(server, "http://127.0.0.1:9000", Stated()).server
    assert traits is not None
    assert traits.model == "m"
    assert {"max_running", "prefix_caching", "request_s"} <= set(traits.assumed)


def test_what_somebody_states_of_a_server_is_not_assumed(row):
    server = msgspec.structs.replace(row, url="http://gpu-1:8000", model="m")
    found = profile_of_row(server, "http://127.0.0.1:9000", Stated(1024, 64, 5000))
    assert found.server is not None
    assert (found.server.chunk_tokens, found.server.max_running) == (1024, 64)
    assert found.server.assumed == ("prefix_caching", "request_s")
    assert found.kv_memory_bytes == 5000 * found.kv_bytes_per_token


def test_costs_are_known_when_late_predictions_are_close(row):
    assert not is_known(row)
    assert is_known(msgspec.structs.replace(row, prefill_error=0.04, decode_error=0.02))
    assert not is_known(msgspec.structs.replace(row, prefill_error=0.04, decode_error=0.2))
