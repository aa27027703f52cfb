"""The transports between two processes on one GPU, as `bench.transfer.gpu` drives them."""

import pytest

from bench.transfer.gpu import measure
from mesh.transports import CUDA_IPC, NCCL, TCP


@pytest.mark.parametrize("transport", [CUDA_IPC, NCCL, TCP])
def test_blocks_move(transport, monkeypatch):
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    copy_rate, rows = measure("cuda:0", 24, [transport])
    assert copy_rate > 0
    assert all(row.gb_per_s > 0 for row in rows)
