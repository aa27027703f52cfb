"""Worlds of devices, and shapes of KV."""

import msgspec
import pytest

from tests.kvtransfer.fake_device import World


@pytest.fixture(params=[0.0, 0.002], ids=["prompt", "slow streams"])
def world(request):
    return World(delay_s=request.param)


@pytest.fixture
def shapes(shape):
    shape = msgspec.structs.replace(shape, head_dim=16)
    large = msgspec.structs.replace(shape, num_layers=11, num_kv_heads=3)
    huge = msgspec.structs.replace(shape, num_layers=7, num_kv_heads=5, head_dim=24)
    return shape, large, huge
