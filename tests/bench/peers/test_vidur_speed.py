"""What Vidur is told of a step, and what our side of the comparison does."""

import pytest

from bench.peers.vidur_child import LAYERS, predictions
from bench.peers.vidur_speed import ours
from simulation.loads.trace_request import TraceRequest


def test_a_step_of_vidur_is_as_long_as_it_is_told():
    found = predictions({"fixed": 29.0, "per_token": 0.1, "per_context_token": 1e-5})
    layer_ms = sum(found[name][8,] for name in found if name != "attn_decode") + found["attn_decode"][8, 1024]
    assert LAYERS * layer_ms == pytest.approx(29.0 + 0.8 + 8 * 1024 * 1e-5)


def test_all_requests_are_simulated():
    speed = ours([TraceRequest(0.1 * number, 200, 20) for number in range(20)], 4)
    assert speed.requests_per_s > 0
    assert speed.simulated_s > 1.9
