"""Services of different shapes in one memory: nobody's bytes are anybody else's, and every page is accounted for."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engines.memory.block_digests import chain
from engines.memory.block_pool import BlockPool, OutOfBlocksError
from engines.memory.packed_pool import block_pool
from engines.memory.pages import PagePool
from engines.memory.runs import Run
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from mesh.wire.transfers import KVShape
from tests.seeds import seeds

SIZE = 2  # tokens in a block
NUM_PAGES = 6
SHAPES = st.builds(
    KVShape, st.integers(1, 6), st.integers(1, 2), st.sampled_from([1, 3, 8]), st.just(SIZE), st.just("float16")
)


def publish(pool: BlockPool, tokens: Sequence[int]) -> list[int]:
    """Hold blocks of that content."""
    blocks = pool.allocate(pool.blocks_for(len(tokens)))
    pool.publish(Run(tokens), blocks, len(tokens) // SIZE)
    return blocks


def pools_of(num_pages: int, *slots: int) -> list[BlockPool]:
    pages = PagePool(num_pages)
    return [block_pool(pages, SIZE, number) for number in slots]


def test_a_service_alone_has_the_whole_memory():
    for pool in pools_of(3, 1, 4, 2):
        assert (pool.num_blocks, pool.num_free) == (3 * pool.slots, 3 * pool.slots)
        blocks = pool.allocate(pool.num_blocks)
        assert sorted(blocks) == list(range(pool.num_blocks))
        pool.release(blocks)


def test_pages_come_back_when_all_of_their_blocks_are_free():
    large, small = pools_of(2, 1, 4)
    blocks = small.allocate(5)
    assert large.num_free == 0
    small.release(blocks[:4])
    assert large.num_free == 1
    small.release(blocks[4:])
    assert large.num_free == 2


class Silent(BlockPool):
    @property
    def num_idle_pages(self) -> int:
        raise AssertionError("of hundreds of pools, each would be asked for the status of each")


@pytest.mark.parametrize("slots", [1, 4])
def test_no_other_pool_is_asked_what_is_idle(slots: int):
    pages = PagePool(4)
    pool, other = block_pool(pages, SIZE, slots), Silent(pages, SIZE)
    held = publish(other, [1, 2, 3, 4])
    assert pool.num_free == 2 * slots
    other.release(held)
    assert pool.num_free == 4 * slots
    publish(pool, [1, 2])
    assert pool.num_free == 4 * slots - 1


def test_slots_of_a_page_are_filled_before_another_page_is_taken():
    large, small = pools_of(4, 1, 4)
    first = small.allocate(4)
    small.release(first[1:3])
    small.allocate(2)
    assert large.num_free == 3


def test_the_page_that_has_been_idle_for_longest_is_given_up_whosever_it_is():
    large, small, wanting = pools_of(3, 1, 2, 3)
    tokens = [1, 2, 3, 4]
    for pool in (small, large, small):
        pool.release(publish(pool, tokens if pool is small else tokens[:2]))
        if pool is small:
            tokens = [5, 6, 7, 8]
    wanting.allocate(1)
    assert small.match([1, 2, 3, 4], 4) == []
    wanting.allocate(3)
    assert large.match([1, 2], 2) == []
    assert len(small.match([5, 6, 7, 8], 4)) == 2
    assert wanting.num_free == 2


def test_a_pool_gives_up_its_own_oldest_block_before_a_page_that_was_used_later():
    large, small = pools_of(2, 1, 2)
    small.release(publish(small, [1, 2, 3, 4]))
    large.release(publish(large, [1, 2]))
    small.allocate(1)
    assert len(large.match([1, 2], 2)) == 1
    assert len(small.match([1, 2, 3, 4], 4)) == 1, "the tail of its prefix went first"


def test_a_page_with_one_held_block_is_kept_and_the_rest_of_it_stays_its_services():
    large, small = pools_of(1, 1, 3)
    blocks = publish(small, [1, 2, 3, 4, 5, 6])
    small.release(blocks[1:])
    assert (large.num_free, small.num_free) == (0, 2)
    with pytest.raises(OutOfBlocksError, match="1 blocks wanted, 0 of 1"):
        large.allocate(1)
    assert small.match([1, 2, 3, 4], 4) == blocks[:2]


def test_releasing_a_free_slot_is_an_error():
    _, small = pools_of(1, 1, 3)
    [block] = small.allocate(1)
    small.release([block])
    with pytest.raises(ValueError, match="nobody holds it"):
        small.release([block])


def test_another_dtype_finds_zeros_where_its_own_finds_what_was_there():
    """What is masked in attention is multiplied by nought, which infinity survives."""
    shapes = [KVShape(1, 1, 8, 2, dtype) for dtype in ("float32", "float32", "bfloat16")]
    memory = PagedMemory(PageLayout.of(shapes, 1))
    first, second, other = (KVMemory(memory, shape) for shape in shapes)
    first.take_page(0)
    first[0] = 255
    second.take_page(0)
    assert memory.pages.all()
    other.take_page(0)
    assert not memory.pages.any()
    memory.close()


@pytest.mark.parametrize("slots", [1, 3])
def test_a_pool_holds_no_more_than_its_quota_however_much_is_free(slots: int):
    pages = PagePool(8)
    bounded, other = block_pool(pages, SIZE, slots, quota=0.25), block_pool(pages, SIZE, 1)
    assert (bounded.num_blocks, bounded.num_free) == (2 * slots, 2 * slots)
    blocks = bounded.allocate(2 * slots - 1)
    assert bounded.can_allocate(1)
    assert not bounded.can_allocate(2)
    with pytest.raises(OutOfBlocksError, match=f"2 blocks wanted, 1 of {2 * slots}"):
        bounded.allocate(2)
    assert other.num_free == 8 - -(-len(blocks) // slots)
    bounded.release(blocks)
    assert bounded.num_held == 0


@pytest.mark.parametrize("slots", [1, 2])
def test_cached_blocks_count_against_a_quota_once_they_are_held_again(slots: int):
    pool = block_pool(PagePool(4), SIZE, slots, quota=0.5)
    tokens = list(range(2 * slots * SIZE))
    pool.release(publish(pool, tokens))
    assert pool.num_free == 2 * slots
    assert len(pool.match(tokens, len(tokens))) == 2 * slots
    assert pool.num_free == 0
    assert not pool.can_allocate(1)


def test_a_quota_has_room_for_a_block_at_least():
    assert block_pool(PagePool(3), SIZE, 1, quota=0.01).num_blocks == 1


@dataclass
class Held:
    """A request's blocks, and what is in each."""

    blocks: list[int]
    content: list[bytes]


@dataclass
class Tenant:
    memory: KVMemory
    pool: BlockPool
    held: list[Held] = field(default_factory=list)

    @property
    def name(self) -> bytes:
        return repr(self.memory.layout.shape).encode()

    def content(self, tokens: Sequence[int], end: int) -> bytes:
        """That a block of those tokens up to ``end`` has: like KV, it depends on all before."""
        seed = int.from_bytes(chain(self.name, tokens[:end]), "little")
        return np.random.default_rng(seed).bytes(self.memory.layout.block_bytes)


class Memory(RuleBasedStateMachine):
    """Random requests of few distinct tokens, so that prefixes are shared often, in real memory."""

    @initialize(
        shapes=st.lists(SHAPES, min_size=1, max_size=4),
        quotas=st.lists(st.sampled_from([None, None, 0.3, 0.7]), min_size=4, max_size=4),
    )
    def begin(self, shapes: list[KVShape], quotas: list[float | None]) -> None:
        self.memory = PagedMemory(PageLayout.of(shapes, NUM_PAGES))
        self.pages = PagePool(NUM_PAGES)
        self.tenants = []
        for shape, quota in zip(shapes, quotas, strict=False):
            memory = KVMemory(self.memory, shape)
            self.tenants.append(Tenant(memory, block_pool(self.pages, SIZE, memory.layout.slots, memory, quota=quota)))
        self.copies: list[tuple[KVMemory, int, int, bytes]] = []  # block, its generation and content then

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            self.memory.close()

    @rule(data=st.data(), tokens=st.lists(st.integers(0, 1), min_size=1, max_size=40))
    def admit(self, data: st.DataObject, tokens: list[int]) -> None:
        tenant = data.draw(st.sampled_from(self.tenants))
        pool, memory = tenant.pool, tenant.memory
        blocks = pool.match(tokens, len(tokens))
        num_matched, missing = len(blocks), pool.blocks_for(len(tokens)) - len(blocks)
        content = [tenant.content(tokens, min(end, len(tokens))) for end in range(SIZE, len(tokens) + SIZE, SIZE)]
        assert [bytes(memory[block]) for block in blocks] == content[:num_matched], "a prefix is not what it was"
        if not pool.can_allocate(missing):
            with pytest.raises(OutOfBlocksError):
                pool.allocate(missing)
            pool.release(blocks)
            return
        blocks += pool.allocate(missing)
        for index in range(num_matched, len(blocks)):
            memory[blocks[index]] = np.frombuffer(content[index], np.uint8)
        pool.publish(Run(tokens), blocks, len(tokens) // SIZE)
        tenant.held.append(Held(blocks, content))

    @precondition(lambda self: any(tenant.held for tenant in self.tenants))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        tenant = data.draw(st.sampled_from([tenant for tenant in self.tenants if tenant.held]))
        held = tenant.held.pop(data.draw(st.integers(0, len(tenant.held) - 1)))
        tenant.pool.release(held.blocks)

    @precondition(lambda self: any(tenant.held for tenant in self.tenants))
    @rule(data=st.data())
    def begin_to_copy(self, data: st.DataObject) -> None:
        """As a peer does that is told of blocks."""
        tenant = data.draw(st.sampled_from([tenant for tenant in self.tenants if tenant.held]))
        held = data.draw(st.sampled_from(tenant.held))
        for block, content in zip(held.blocks, held.content, strict=True):
            [generation] = tenant.memory.generations([block])
            self.copies.append((tenant.memory, block, generation, content))

    @invariant()
    def live_blocks_hold_what_was_put_there(self) -> None:
        for tenant in getattr(self, "tenants", []):
            for held in tenant.held:
                assert [bytes(tenant.memory[block]) for block in held.blocks] == held.content

    @invariant()
    def what_changed_has_another_generation(self) -> None:
        for memory, block, generation, content in getattr(self, "copies", []):
            assert not memory.is_unchanged([block], [generation]) or bytes(memory[block]) == content

    @invariant()
    def accounting_is_exact(self) -> None:
        for tenant in getattr(self, "tenants", []):
            tenant.pool.check_invariants()
            fork = copy.deepcopy(tenant.pool, {id(other.memory): None for other in self.tenants})
            fork.allocate(fork.num_free)
            assert fork.num_free == 0
            fork.check_invariants()

    @invariant()
    def everything_comes_back(self) -> None:
        tenants = getattr(self, "tenants", [])
        if tenants and not any(tenant.held for tenant in tenants):
            assert all(tenant.pool.num_held == 0 for tenant in tenants)


TestMemory = Memory.TestCase
TestMemory.settings = settings(max_examples=len(seeds(15)), stateful_step_count=30)


def test_whoever_keeps_the_content_is_told_of_each_page_and_block_that_is_taken():
    told = Told([], [])
    pool = block_pool(PagePool(4), SIZE, 3, told)
    blocks = pool.allocate(4)
    assert (len(told.pages), told.blocks) == (2, blocks)
    assert {block // 3 for block in blocks} == set(told.pages)
    pool.release(blocks)
    again = pool.allocate(3)
    assert told.blocks == blocks + again


@dataclass
class Told:
    """Keeps what it is told of."""

    pages: list[int]
    blocks: list[int]

    def take_page(self, page: int) -> None:
        self.pages.append(page)

    def reuse(self, block: int) -> None:
        self.blocks.append(block)
