"""Several blocks to a page: when a page is taken, when it is given back, and what is given up for it."""

import pytest

from engines.memory.block_pool import BlockPool, OutOfBlocksError
from engines.memory.packed_pool import PackedBlockPool, block_pool
from engines.memory.pages import PagePool
from engines.memory.runs import Run

SIZE, SLOTS = 4, 2


def packed(num_pages: int = 3, quota: int | None = None) -> tuple[PagePool, PackedBlockPool]:
    pages = PagePool(num_pages)
    return pages, PackedBlockPool(pages, SIZE, SLOTS, quota=quota)


def cache(pool: BlockPool, *tokens: int) -> list[int]:
    """Leave blocks of these tokens behind that nobody holds."""
    blocks = pool.allocate(pool.blocks_for(len(tokens)))
    pool.publish(Run(list(tokens)), blocks, len(blocks))
    pool.release(blocks)
    return blocks


def test_a_page_is_taken_with_its_first_block_and_given_back_with_its_last():
    pages, pool = packed()
    first, second = pool.allocate(1), pool.allocate(1)
    assert {block // SLOTS for block in first + second} == pool.owned_pages()
    assert len(pages.free) == 2
    pool.release(first)
    assert len(pages.free) == 2
    pool.release(second)
    assert len(pages.free) == 3
    pool.check_invariants()


def test_all_blocks_can_be_had_and_no_more():
    _, pool = packed()
    assert sorted(pool.allocate(6)) == list(range(6))
    assert (pool.num_free, pool.num_held) == (0, 6)
    with pytest.raises(OutOfBlocksError, match="1 blocks wanted, 0 of 6"):
        pool.allocate(1)
    pool.check_invariants()


def test_a_failed_allocation_holds_nothing():
    _, pool = packed()
    pool.allocate(5)
    with pytest.raises(OutOfBlocksError):
        pool.allocate(2)
    assert pool.num_free == 1
    pool.check_invariants()


def test_a_quota_is_counted_in_blocks_of_its_pages():
    _, pool = packed(quota=1)
    assert (pool.num_blocks, pool.num_free) == (SLOTS, SLOTS)
    pool.allocate(SLOTS)
    assert not pool.can_allocate(1)


def test_what_nobody_holds_is_given_up_before_an_allocation_fails():
    _, pool = packed(num_pages=2)
    oldest = cache(pool, 1, 2, 3, 4)
    youngest = cache(pool, 5, 6, 7, 8)
    held = pool.allocate(3)
    assert set(held).isdisjoint(youngest)
    assert pool.match([1, 2, 3, 4], SIZE) == []
    assert pool.match([5, 6, 7, 8], SIZE) == youngest
    assert oldest != youngest
    pool.check_invariants()


def test_a_page_of_which_a_block_is_held_is_not_idle():
    _, pool = packed()
    blocks = cache(pool, *range(2 * SIZE))
    assert pool.num_idle_pages == 1
    held = pool.match(list(range(SIZE)), SIZE)
    assert held == blocks[:1]
    assert pool.num_idle_pages == 0
    pool.release(held)
    assert pool.num_idle_pages == 1
    pool.check_invariants()


def test_another_service_gets_the_page_that_has_been_idle_for_longest():
    pages, pool = packed(num_pages=2)
    other = BlockPool(pages, SIZE)
    cache(pool, *range(2 * SIZE))
    cache(pool, *range(100, 100 + 2 * SIZE))
    assert other.num_free == 2
    [page] = other.allocate(1)
    assert page not in pool.owned_pages()
    assert pool.match(list(range(2 * SIZE)), 2 * SIZE) == []
    assert len(pool.match(list(range(100, 100 + 2 * SIZE)), 2 * SIZE)) == 2
    pages.check_invariants()


def test_a_block_that_nobody_holds_cannot_be_released():
    _, pool = packed()
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(ValueError, match="nobody holds it"):
        pool.release(blocks)


@pytest.mark.parametrize(("slots", "kind"), [(1, BlockPool), (2, PackedBlockPool)])
def test_a_pool_is_packed_where_a_page_has_several_blocks(slots: int, kind: type):
    assert type(block_pool(PagePool(8), SIZE, slots)) is kind


@pytest.mark.parametrize(("quota", "num_pages"), [(None, 8), (0.5, 4), (0.01, 1), (1.0, 8)])
def test_a_part_of_the_pages_is_one_at_least(quota: float | None, num_pages: int):
    assert block_pool(PagePool(8), SIZE, SLOTS, quota=quota).num_blocks == num_pages * SLOTS
