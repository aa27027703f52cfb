import pytest

from kvtransfer.layout import KVLayout
from mesh.messages import KVShape


def test_a_block_holds_keys_and_values_of_all_layers():
    layout = KVLayout(KVShape(num_layers=30, num_kv_heads=3, head_dim=64, block_size=16, dtype="float32"), 10)
    assert layout.block_bytes == 30 * 2 * 16 * 3 * 64 * 4
    assert layout.num_tokens == 160
    assert [layout.num_blocks_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_blocks_fill_a_budget_aligned():
    shape = KVShape(num_layers=1, num_kv_heads=1, head_dim=3, block_size=1, dtype="float16")
    layout = KVLayout.fitting(shape, 1000)
    assert (layout.block_bytes, layout.stride_bytes, layout.num_blocks) == (12, 64, 15)


def test_a_budget_below_one_block_is_refused(shape):
    with pytest.raises(ValueError, match=r"100 bytes of KV memory hold no block of 512 bytes"):
        KVLayout.fitting(shape, 100)


def test_an_unknown_dtype_is_refused():
    shape = KVShape(num_layers=1, num_kv_heads=1, head_dim=1, block_size=1, dtype="float8")
    with pytest.raises(ValueError, match=r"'float8' is unknown: want one of float32, bfloat16, float16"):
        _ = KVLayout(shape, 1).block_bytes
