"""A server beside its twin: a mock server whose costs are known, and errors by hand."""

import json

import pytest

from bench.gateway.servers import mock_backend
from bench.twin import Means, errors, main, predict
from engines.costs.profiles import EngineProfile, ServerTraits
from mesh.topology.schema import Slo
from mesh.wire.status import DecodeCost, PrefillCost
from simulation.loads.trace_request import TraceRequest


def test_errors_are_of_both_means_and_relative():
    pairs = [(Means(100.0, 10.0, 1.0), Means(110.0, 10.0, 0.9)), (Means(200.0, 20.0, 1.0), Means(100.0, 21.0, 1.0))]
    assert errors(pairs) == pytest.approx([0.1, 0.0, -0.5, 0.05])


def test_an_idle_twin_takes_a_requests_way_and_its_iterations():
    traits = ServerTraits(chunk_tokens=512, max_running=8, request_s=0.05)
    twin = EngineProfile("m", PrefillCost(0.02, 2e-4), DecodeCost(0.02, 1e-3), 4, 4 * 100_000, "made up", server=traits)
    means = predict(twin, Slo(0.3, 0.05, 0.9), [TraceRequest(0.0, 100, 11), TraceRequest(5.0, 100, 11)])
    assert means == pytest.approx((50.0 + 20.0 + 20.0, 21.0, 1.0), rel=1e-3)


def test_a_server_is_profiled_and_compared_at_the_three_loads(tmp_path, capsys):
    path, costs = tmp_path / "twin.json", ("--step-ms", "5", "--token-us", "50", "--request-us", "200")
    with mock_backend("mock", *costs, "--max-running", "4") as server:
        main(["--url", server.url, "--minutes", "0.05", "--seconds", "1", "--quiet", "--json", str(path),
              "--input-tokens", "32:64", "--output-tokens", "8:16"])  # fmt: skip
    half, full, more = json.loads(path.read_text())
    assert 0.5 * full["rate"] == pytest.approx(half["rate"])
    assert 1.3 * full["rate"] == pytest.approx(more["rate"])
    assert all(ttft_ms > 0 and tpot_ms > 0 for ttft_ms, tpot_ms, _ in (half["measured"], half["predicted"]))
    assert "capacity: measured" in capsys.readouterr().out
