"""The transports between two processes on one GPU, as `bench.transfer.speed` drives them."""

from bench.transfer.speed import compare
from mesh.transports import CUDA_IPC, NCCL, TCP


def test_blocks_move_by_each_transport(monkeypatch):
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    rows = compare("cuda:0", 8192, 1)
    assert [row.way for row in rows] == ["copy", CUDA_IPC, NCCL, TCP]
    assert all(row.gb_per_s > 0 for row in rows)
