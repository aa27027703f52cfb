"""Builders for engine tests."""

from collections.abc import Callable

import pytest

from engines.engine_request import EngineRequest
from mesh.wire.control import PrefillMode
from mesh.wire.requests import Epoch, RequestSpec, Sampling

MakeSpec = Callable[..., RequestSpec]
MakeSequence = Callable[..., EngineRequest]


@pytest.fixture
def make_spec() -> MakeSpec:
    def make(
        request: str = "r", num_prompt: int = 8, max_tokens: int = 4, first: int = 1, **overrides: object
    ) -> RequestSpec:
        sampling = Sampling(max_tokens=max_tokens, seed=1, temperature=0.0)
        values = {
            "id": request,
            "gateway": "gateway",
            "service": "tiny",
            "prompt": list(range(first, first + num_prompt)),
            "sampling": sampling,
            "slo_ttft_s": 10.0,
            "slo_tpot_s": 0.1,
        }
        return RequestSpec(**(values | overrides))  # type: ignore[arg-type]

    return make


@pytest.fixture
def make_sequence(make_spec: MakeSpec) -> MakeSequence:
    def make(
        request_id: str = "r",
        num_prompt: int = 8,
        arrived_at: float = 0.0,
        mode: PrefillMode = PrefillMode.CHUNKED,
        **overrides: object,
    ) -> EngineRequest:
        spec = make_spec(request_id, num_prompt, **overrides)
        request = EngineRequest.of(spec, Epoch(1), arrived_at, frozenset({0}), 1024)
        request.prefill_mode = mode
        return request

    return make
