"""Builders for transfer tests."""

from collections.abc import Callable

import pytest

from mesh.wire.requests import Epoch, RequestSpec, Sampling
from mesh.wire.transfers import KVShape, MemoryRef, Reserve

MakeReserve = Callable[..., Reserve]
BLOCK_SIZE = 4


@pytest.fixture(scope="session")
def shape() -> KVShape:
    return KVShape(num_layers=2, num_kv_heads=1, head_dim=8, block_size=BLOCK_SIZE, dtype="float32")


@pytest.fixture(scope="session")
def make_reserve(shape: KVShape) -> MakeReserve:
    def make(num_tokens: int = 20, deadline_s: float = 10.0, memory: MemoryRef | None = None) -> Reserve:
        sampling = Sampling(max_tokens=4, seed=1)
        spec = RequestSpec("r", "gateway", "tiny", list(range(num_tokens)), sampling, slo_ttft_s=1.0, slo_tpot_s=0.1)
        return Reserve("t", spec, Epoch(1, 1), num_tokens, shape, memory, deadline_s)

    return make
