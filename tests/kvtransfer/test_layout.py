import random
from math import lcm

import pytest

from kvtransfer.layout import KVLayout, PageLayout, block_bytes, row_bytes
from mesh.wire.transfers import KVShape
from tests.seeds import each_seed

LARGE = KVShape(num_layers=30, num_kv_heads=3, head_dim=64, block_size=16, dtype="float32")
SMALL = KVShape(num_layers=4, num_kv_heads=2, head_dim=32, block_size=16, dtype="float32")


def test_a_block_holds_keys_and_values_of_all_layers():
    layout = KVLayout(LARGE, PageLayout.of([LARGE], 10))
    assert layout.block_bytes == 30 * 2 * 16 * 3 * 64 * 4
    assert layout.num_tokens == 160


def test_a_service_alone_has_a_block_a_page():
    for shape in (LARGE, SMALL):
        pages = PageLayout.of([shape], 7)
        assert (pages.page_bytes, pages.most_slots) == (block_bytes(shape), 1)
        assert KVLayout(shape, pages).num_blocks == 7


def test_small_blocks_are_packed_into_pages_of_large_ones():
    pages = PageLayout.of([SMALL, LARGE], 7)
    assert pages.page_bytes == block_bytes(LARGE)
    assert KVLayout(LARGE, pages).slots == 1
    assert KVLayout(SMALL, pages).slots == pages.most_slots == block_bytes(LARGE) // block_bytes(SMALL) == 22
    assert KVLayout(SMALL, pages).num_blocks == 154


def test_pages_are_larger_than_the_largest_block_where_others_would_waste_half_of_them():
    """Qwen 2.5 0.5B's block is 53 % of SmolLM2's: two of them are not much more than one of those."""
    shape = KVShape(num_layers=24, num_kv_heads=2, head_dim=64, block_size=16, dtype="float32")
    pages = PageLayout.of([LARGE, shape], 7)
    assert pages.page_bytes == 2 * block_bytes(shape) == pytest.approx(1.067 * block_bytes(LARGE), rel=1e-3)
    assert KVLayout(LARGE, pages).slots == 1
    assert KVLayout(shape, pages).slots == 2


@each_seed(range(50))
def test_rows_of_all_services_tile_the_pages_and_a_page_holds_every_block(seed):
    dice = random.Random(seed)
    size = dice.choice([1, 3, 4, 16])
    shapes = [
        KVShape(dice.randint(1, 9), dice.randint(1, 4), dice.choice([3, 8, 20, 32, 48, 64, 80]), size, dtype)
        for dtype in dice.choices(["float32", "bfloat16", "float16"], k=dice.randint(1, 4))
    ]
    pages = PageLayout.of(shapes, dice.randint(1, 9))
    assert pages.page_bytes % 64 == 0
    for shape in shapes:
        layout = KVLayout(shape, pages)
        assert pages.page_bytes % row_bytes(shape) == 0
        assert 1 <= layout.slots <= pages.most_slots
        assert layout.slots * layout.block_bytes <= pages.page_bytes < (layout.slots + 1) * layout.block_bytes
    assert pages.page_bytes <= 3 * max(*map(block_bytes, shapes), lcm(64, *map(row_bytes, shapes)))


def test_pages_fill_a_budget():
    shape = KVShape(num_layers=1, num_kv_heads=1, head_dim=3, block_size=1, dtype="float16")
    pages = PageLayout.fitting([shape], 1000)
    assert (pages.page_bytes, pages.num_pages, KVLayout(shape, pages).slots) == (192, 5, 16)


def test_a_budget_below_one_page_is_refused(shape):
    with pytest.raises(ValueError, match=r"100 bytes of KV memory hold no block of 512 bytes"):
        PageLayout.fitting([shape], 100)


def test_pages_that_were_not_made_for_a_shape_hold_none_of_its_blocks():
    assert KVLayout(LARGE, PageLayout.of([SMALL], 100)).slots == 0
    assert KVLayout(SMALL, PageLayout.of([LARGE], 100)).slots == 0


def test_an_unknown_dtype_is_refused():
    shape = KVShape(num_layers=1, num_kv_heads=1, head_dim=1, block_size=1, dtype="float8")
    with pytest.raises(ValueError, match=r"'float8' is unknown: want one of float32, bfloat16, float16"):
        block_bytes(shape)
