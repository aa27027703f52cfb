"""The transports between two processes on one GPU, as `bench.transfer.speed` drives them."""

from bench.transfer.speed import compare, gpu_ways


def test_blocks_move_by_each_transport(monkeypatch):
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    rows = compare("cuda:0", 8192, 1)
    assert [row.way for row in rows] == ["copy", *gpu_ways("cuda:0")]
    assert all(row.gb_per_s > 0 for row in rows)
