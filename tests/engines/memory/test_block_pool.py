"""The block pool: accounting under any order of operations, and prefix reuse."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engines.memory.block_digests import ROOT, chain
from engines.memory.block_pool import BlockPool, OutOfBlocksError
from engines.memory.pages import PagePool
from engines.memory.runs import Run
from tests.seeds import seeds

SIZE = 4


class Told:
    """Keeps what it is told of."""

    def __init__(self) -> None:
        self.pages: list[int] = []
        self.blocks: list[int] = []

    def take_page(self, page: int) -> None:
        self.pages.append(page)

    def reuse(self, block: int) -> None:
        self.blocks.append(block)


def fill(pool: BlockPool, tokens: list[int]) -> list[int]:
    """Hold blocks for ``tokens`` and publish the full ones."""
    blocks = pool.allocate(pool.blocks_for(len(tokens)))
    pool.publish(Run(tokens), blocks, len(tokens) // SIZE)
    return blocks


def test_released_full_blocks_are_found_again_by_their_prefix():
    pool = BlockPool(PagePool(8), SIZE)
    blocks = fill(pool, list(range(10)))
    pool.release(blocks)
    assert pool.num_free == 8
    assert pool.match([*range(8), 99, 99], 10) == blocks[:2]
    assert pool.num_free == 6


def test_a_different_beginning_does_not_match_the_same_later_tokens():
    pool = BlockPool(PagePool(8), SIZE)
    pool.release(fill(pool, [1, 2, 3, 4, 5, 6, 7, 8]))
    assert pool.match([9, 2, 3, 4, 5, 6, 7, 8], 8) == []


def test_the_tail_of_a_cached_prefix_is_given_up_before_its_head():
    pool = BlockPool(PagePool(4), SIZE)
    blocks = fill(pool, list(range(16)))
    pool.release(blocks)
    pool.allocate(2)
    assert pool.match(list(range(16)), 16) == blocks[:2]


def test_a_cached_block_whose_content_turns_out_to_be_known_elsewhere_is_free():
    """Of two that computed the same at a time, the tail of one outlives the head of the other."""
    pool, tokens = BlockPool(PagePool(12), SIZE), [7] * 12
    first, second = fill(pool, tokens[:8]), fill(pool, tokens)
    pool.release(first)
    pool.release(second)
    free = pool.allocate(pool.num_free - 1)
    assert pool.match(tokens, 12) == [], "the head is gone"
    pool.release(free)
    third = fill(pool, tokens)
    pool.release(third)
    pool.check_invariants()
    assert pool.match(tokens, 12) == [*third[:2], second[2]]
    pool.check_invariants()
    assert third[2] in pool.allocate(pool.num_free)


def test_reuse_is_announced_before_a_block_gets_new_content():
    told = Told()
    pool = BlockPool(PagePool(2), SIZE, told)
    first = pool.allocate(2)
    pool.release(first)
    pool.allocate(1)
    assert told.pages == [*first, told.pages[-1]]
    assert len(told.pages) == 3


def test_asking_for_too_many_holds_none():
    pool = BlockPool(PagePool(3), SIZE)
    with pytest.raises(OutOfBlocksError, match="4 blocks wanted, 3 of 3"):
        pool.allocate(4)
    assert pool.num_free == 3


def test_releasing_a_free_block_is_an_error():
    pool = BlockPool(PagePool(1), SIZE)
    with pytest.raises(ValueError, match="nobody holds it"):
        pool.release([0])


def test_what_is_not_to_be_relied_on_is_found_by_nobody():
    pool, tokens = BlockPool(PagePool(8), SIZE), list(range(3 * SIZE))
    blocks = pool.allocate(3)
    pool.publish(Run(tokens), blocks, 3)
    pool.unpublish(blocks)
    assert pool.match(tokens, len(tokens)) == []
    pool.release(blocks)
    pool.check_invariants()
    assert pool.match(tokens, len(tokens)) == []


def test_the_chain_depends_on_everything_before():
    assert chain(ROOT, [1]) != chain(chain(ROOT, [1]), [1])


class PoolMachine(RuleBasedStateMachine):
    """Random requests with few distinct tokens, so that prefixes are shared often.

    Beside a pool that computes digests when it must, one that is made to compute all: both do the same, until a block
    is distrusted whose successor others know. Then the first pool may cache that one's content twice for a while.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.eager = BlockPool(PagePool(12), SIZE), BlockPool(PagePool(12), SIZE)
        self.tables: list[tuple[list[int], list[int]]] = []  # of each request, in either pool
        self.are_alike = True

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=20))
    def admit(self, tokens: list[int]) -> None:
        table, same = self.admit_to(self.pool, tokens), self.admit_to(self.eager, tokens)
        if self.are_alike:
            assert table == same
        if table is not None and same is not None:
            self.tables.append((table, same))
        elif table is not None or same is not None:  # there is room in one of them: what they share may differ now
            self.pool.release(table or [])
            self.eager.release(same or [])

    def admit_to(self, pool: BlockPool, tokens: list[int]) -> list[int] | None:
        blocks = pool.match(tokens, len(tokens))
        missing = pool.blocks_for(len(tokens)) - len(blocks)
        if not pool.can_allocate(missing):
            pool.release(blocks)
            return None
        blocks += pool.allocate(missing)
        run = Run(tokens)
        for num_full in range(len(tokens) // SIZE + 1):
            pool.publish(run, blocks, num_full)
            if pool is self.eager:
                pool.release(pool.match(tokens, SIZE))
        return blocks

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        table, same = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        self.pool.release(table)
        self.eager.release(same)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def distrust(self, data: st.DataObject) -> None:
        """What is in the blocks of a request may be wrong: nobody else is to find them."""
        table, same = self.tables[data.draw(st.integers(0, len(self.tables) - 1))]
        self.pool.unpublish(table)
        self.eager.unpublish(same)
        self.are_alike = False

    @invariant()
    def accounting_is_exact(self) -> None:
        for number, pool in enumerate((self.pool, self.eager)):
            pool.check_invariants()
            held = {block for tables in self.tables for block in tables[number]}
            assert pool.num_free == pool.num_blocks - len(held)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=len(seeds(12)), stateful_step_count=40)
