"""A block pool whose blocks are so small that several lie in a page (SeaLLM's merged blocks)."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain
from math import inf

from engines.memory.block_pool import BlockPool, Content, OutOfBlocksError
from engines.memory.pages import PagePool


class PackedBlockPool(BlockPool):
    """Block ``b`` is slot ``b % slots`` of page ``b // slots``.

    A page is taken when no slot is free, and given back when all of its slots are.
    """

    def __init__(
        self,
        pages: PagePool,
        block_size: int,
        slots: int,
        content: Content | None = None,
        quota: int | None = None,
    ) -> None:
        self.slots = slots
        super().__init__(pages, block_size, content, quota)
        self._open: OrderedDict[int, list[int]] = OrderedDict()  # free blocks by page, of pages that have others, too
        self._num_open = 0  # blocks in there
        self._num_held_in = [0] * pages.num_pages
        self._idle: OrderedDict[int, int] = OrderedDict()  # pages, longest first: since when

    def __repr__(self) -> str:
        cached, pages = len(self._cached), len(self.owned_pages())
        return f"<PackedBlockPool {self.num_held} of {self.num_blocks} not to be had, {cached} cached, {pages} pages>"

    @property
    def num_free(self) -> int:
        num_pages = len(self._free) + self.pages.num_idle_beside(self)
        return min(self._num_open + len(self._cached) + num_pages * self.slots, self.num_of_quota)

    @property
    def num_unused(self) -> int:
        return self._num_open + len(self._free) * self.slots

    def allocate(self, count: int) -> list[int]:
        if count > self.num_free:
            raise OutOfBlocksError(f"{count} blocks wanted, {self.num_free} of {self.num_blocks} can be had")
        blocks: list[int] = []
        while len(blocks) < count:
            if not self._open and not self._add_page():
                self._evict_block()
            else:
                blocks += self._take_from_page(count - len(blocks))
        self._num_here += count
        for block in blocks:
            self._holders[block] = 1
            if self._content is not None:
                self._content.reuse(block)
        return blocks

    def _add_page(self) -> bool:
        """Open a free page, or one of another pool."""
        if not self._free and not self.pages.reclaim(self):
            return False
        page = self._free.pop()
        if self._content is not None:
            self._content.take_page(page)
        self._open[page] = list(range((page + 1) * self.slots - 1, page * self.slots - 1, -1))
        self._num_open += self.slots
        return True

    def _evict_block(self) -> None:
        """The one that has been cached for longest."""
        self._put_free(self._evict_named())

    def _take_from_page(self, most: int) -> list[int]:
        """Of the page that has been open for longest: those with fewer blocks in them may come free meanwhile."""
        page, free = next(iter(self._open.items()))
        taken = free[: -most - 1 : -1]
        del free[-len(taken) :]
        if not free:
            del self._open[page]
        self._num_open -= len(taken)
        self._count_held(page, len(taken))
        return taken

    def _count_held(self, page: int, more: int) -> None:
        if not self._num_held_in[page]:
            self.pages.num_held += 1
        self._num_held_in[page] += more
        self._idle.pop(page, None)

    def release(self, blocks: Sequence[int]) -> None:
        self.pages.clock = now = self.pages.clock + 1
        let_go = self._let_go(blocks)
        self._num_here -= len(let_go)
        for block in reversed(let_go):
            page = block // self.slots
            self._num_held_in[page] -= 1
            if not self._num_held_in[page]:
                self.pages.num_held -= 1
                self._idle[page] = now
            if self._names[block] is None:
                self._put_free(block)
        self._cached.add([block for block in let_go if self._names[block] is not None], now)

    def hold(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if not self._holders[block]:
                self._num_here += 1
                self._cached.remove(block)
                self._count_held(block // self.slots, 1)
            self._holders[block] += 1

    def _put_free(self, block: int) -> None:
        page = block // self.slots
        free = self._open.setdefault(page, [])
        free.append(block)
        self._num_open += 1
        if len(free) == self.slots:
            del self._open[page]
            self._num_open -= self.slots
            self._idle.pop(page, None)
            self._free.append(page)

    # --- what the pools of other services ask (`engines.memory.pages.Owner`) ------------------------------------------

    @property
    def num_idle_pages(self) -> int:
        return len(self._idle)

    @property
    def idle_since(self) -> float:
        return next(iter(self._idle.values()), inf)

    def evict_page(self) -> None:
        page = next(iter(self._idle))
        for block in range(page * self.slots, (page + 1) * self.slots):
            if self._names[block] is not None:  # to evict one can free others
                self._cached.remove(block)
                self._forget(block)
                self._put_free(block)

    def owned_pages(self) -> set[int]:
        return {block // self.slots for block in (*self._held(), *self._cached)}

    def check_invariants(self, *, with_pages: bool = True) -> None:
        """Raise AssertionError unless, beyond what holds of every pool, what is known of each page is true."""
        super().check_invariants(with_pages=with_pages)
        held, pages = Counter(block // self.slots for block in self._held()), self.owned_pages()
        cached = Counter(block // self.slots for block in self._cached)
        assert {page: n for page, n in enumerate(self._num_held_in) if n} == dict(held), "held blocks are miscounted"
        assert set(self._idle) == pages - set(held), "a page is idle though blocks of it are held, or the reverse"
        assert sum(map(len, self._open.values())) == self._num_open, "free blocks are miscounted"
        for page in pages | set(self._open):
            free = self._open.get(page, [])
            assert {block // self.slots for block in free} <= {page}, "a free block is in another page"
            assert len(set(free)) + held[page] + cached[page] == self.slots, "a block is lost"

    def _free_blocks(self) -> Iterable[int]:
        return chain.from_iterable(self._open.values())


def block_pool(
    pages: PagePool, block_size: int, slots: int, content: Content | None = None, *, quota: float | None = None
) -> BlockPool:
    """Make the pool of a service whose blocks lie ``slots`` to a page. ``quota``: the part of the pages that it may
    hold.
    """
    num_pages = None if quota is None else max(1, round(quota * pages.num_pages))
    if slots == 1:
        return BlockPool(pages, block_size, content, num_pages)
    return PackedBlockPool(pages, block_size, slots, content, num_pages)
