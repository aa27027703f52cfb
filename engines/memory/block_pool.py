"""The block pool: which KV blocks are whose, and which still hold a prefix worth reusing. Accounting only, no tensors.

A block is free, held, or cached. Several requests can hold one block: a shared prefix. A cached block is full and held
by nobody. The hash of all tokens up to its end names its content, so that a later request with the same beginning can
take it. Cached blocks are evicted oldest first when free ones run out.

The pools of an engine's services share its pages (`engines.memory.pages`). A pool whose blocks fill a page each is
here; for smaller blocks there is `engines.memory.packed_pool`.
"""

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import compress, count
from math import inf
from typing import Protocol

from engines.memory.block_digests import Digest, chain, digests_of
from engines.memory.cached_blocks import CachedBlocks
from engines.memory.pages import Claimant, PagePool, Precedence
from engines.memory.runs import FoundBlock, Run


class OutOfBlocksError(RuntimeError):
    """More blocks were asked for than can be had; ask `BlockPool.can_allocate` first."""


class Content(Protocol):
    """What is told before pages and blocks get new content."""

    def take_page(self, page: int) -> None:
        """All of the page will."""

    def reuse(self, block: int) -> None:
        """The block will, the rest of its page not."""


class BlockPool:
    """Hands out blocks of ``block_size`` tokens; block and page have the same number.

    ``quota``: pages' worth of blocks that may be held at a time; None: all. What is cached counts for nobody, as it is
    evicted for whoever wants memory.
    """

    slots = 1  # blocks in a page

    def __init__(
        self, pages: PagePool, block_size: int, content: Content | None = None, quota: int | None = None
    ) -> None:
        num_all = pages.num_pages * self.slots
        self.num_blocks = num_all if quota is None else min(num_all, quota * self.slots)  # that can be had at most
        self.block_size = block_size
        self.pages = pages
        self._content = content
        self._free = pages.free
        self._cached = CachedBlocks(num_all)
        self._holders = array("H", bytes(2 * num_all))  # how many, of each block
        self._num_here = 0  # that somebody holds
        self._names: list[Digest | Run | None] = [None] * num_all  # published; a run: not computed yet
        self._by_digest: dict[Digest, int] = {}
        self._alone: dict[Digest, Run] = {}  # by the digest of their first block
        self._found: deque[FoundBlock] | None = None  # since they were asked for
        self.gone: deque[Digest] = deque(maxlen=num_all)  # likewise; some may have come again
        pages.add(self)

    def __repr__(self) -> str:
        cached, free = len(self._cached), len(self._free)
        return f"<BlockPool {self.num_held} held, {cached} cached, {free} free of {self.num_blocks}>"

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now: free ones, cached ones, and those of pages that others would evict."""
        num_all, num_of_quota = len(self._free) + self._cached.num, self.num_blocks - self._num_here
        if self.pages.is_shared:
            num_all += self.pages.num_idle_beside(self)
        return num_all if num_all < num_of_quota else num_of_quota

    @property
    def num_unused(self) -> int:
        """Blocks of free memory: nothing is evicted for them."""
        return len(self._free)

    @property
    def num_of_quota(self) -> int:
        """Blocks that are left of what this pool may hold, be there memory or not."""
        return self.num_blocks - self._num_here

    @property
    def num_held(self) -> int:
        """Blocks that cannot be had now, of those that can be had at most."""
        return self.num_blocks - self.num_free

    @property
    def is_used(self) -> bool:
        """Return whether a block is held here. Slow: it looks at all."""
        return any(self._holders)

    def is_held(self, block: int) -> bool:
        """Return whether somebody holds the block."""
        return self._holders[block] > 0

    def num_sole(self, blocks: Sequence[int]) -> int:
        """Return how many of a table's blocks nobody else holds."""
        return sum([self._holders[block] == 1 for block in blocks])

    def num_freed(self, tables: Iterable[Sequence[int]]) -> int:
        """Return how many blocks nobody would hold if these tables were released: others share prefixes with them."""
        releases = Counter(block for blocks in tables for block in blocks)
        return sum([self._holders[block] == number for block, number in releases.items()])

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def can_allocate(self, count: int) -> bool:
        if count > self.num_blocks - self._num_here:
            return False
        return count <= len(self._free) or count <= self.num_free  # the first is enough mostly

    def can_admit(self, count: int, claimant: Claimant, precedence: Precedence) -> bool:
        """Do as `can_allocate`, for a request that begins. It leaves room for more urgent requests of other services
        that wait for memory. If it has to wait for memory itself, it claims as much.
        """
        pages = self.pages
        if not pages.is_shared or count > self.num_of_quota:
            return self.can_allocate(count)
        if self.can_allocate(count + pages.claimed_beside(self, precedence) * self.slots):
            pages.settle(self)
            return True
        pages.claim(self, claimant, precedence, -(-count // self.slots))
        return False

    def allocate(self, count: int) -> list[int]:
        """Hold ``count`` blocks with undefined content. Raise `OutOfBlocksError` (and hold none) if there are fewer."""
        free, holders, content = self._free, self._holders, self._content
        if count == 1 and free and content is None and self._num_here < self.num_blocks:  # as decodes need them
            self._num_here, block = self._num_here + 1, free.pop()
            self.pages.num_held += 1
            holders[block] = 1
            return [block]
        if (count > len(free) or count > self.num_of_quota) and count > self.num_free:
            raise OutOfBlocksError(f"{count} blocks wanted, {self.num_free} of {self.num_blocks} can be had")
        blocks = free[: -count - 1 : -1].tolist()
        del free[-len(blocks) or len(free) :]
        while len(blocks) < count:
            if free:  # to evict one block can free others
                blocks.append(free.pop())
            elif not (self.pages.is_shared and self.pages.reclaim(self)):
                blocks += self._evict_own(count - len(blocks))
        self._num_here += count
        self.pages.num_held += count
        for block in blocks:
            holders[block] = 1
        if content is not None:
            for block in blocks:
                content.take_page(block)
        return blocks

    def _evict_own(self, most: int) -> list[int]:
        """Cached blocks, one at least: those that nobody has held for longer than any page of another pool."""
        cached, free, names = self._cached, self._free, self._names
        idle_since = self.pages.idle_since_beside(self) if self.pages.is_shared else inf
        blocks: list[int] = []
        while not blocks or (
            len(blocks) < most and not free and cached and (idle_since == inf or cached.since < idle_since)
        ):
            num_before = len(blocks)
            for block in cached.first(most - num_before):
                name = names[block]
                if type(name) is not Run:
                    break
                names[block] = None  # as `_forget` does: in the long run, this is every block that is allocated
                name.num_pending -= 1
                blocks.append(block)
            if len(blocks) > num_before:
                cached.pop(len(blocks) - num_before)
            else:
                blocks.append(self._evict_named())
        return blocks

    def _evict_named(self) -> int:
        """The cached block that goes first."""
        block = self._cached.pop()
        self._forget(block)
        return block

    def _forget(self, block: int) -> None:
        name = self._names[block]
        self._names[block] = None
        if isinstance(name, Run):
            name.num_pending -= 1
        elif name is not None:
            del self._by_digest[name]
            self._join(name)
            if self._found is not None:
                self.gone.append(name)

    def release(self, blocks: Sequence[int]) -> None:
        """Give up one hold on each block of a table; once cached, its tail is evicted before its head."""
        names = self._names
        self.pages.clock = now = self.pages.clock + 1
        let_go = self._let_go(blocks)
        self._num_here -= len(let_go)
        self.pages.num_held -= len(let_go)
        published = [block for block in let_go if names[block] is not None]
        self._cached.add(published, now)
        if len(published) < len(let_go):
            self._free.extend([block for block in reversed(let_go) if names[block] is None])

    def _let_go(self, blocks: Sequence[int]) -> Sequence[int]:
        """One holder of each less. Those that have none any more."""
        holders = self._holders
        num_holders = [holders[block] for block in blocks]
        if num_holders.count(1) == len(blocks):
            for block in blocks:
                holders[block] = 0
            return blocks
        if 0 in num_holders:
            raise ValueError(f"block {blocks[num_holders.index(0)]} is released but nobody holds it")
        for block in blocks:
            holders[block] -= 1
        return [block for block, num in zip(blocks, num_holders, strict=True) if num == 1]

    def match(self, tokens: Sequence[int], num_tokens: int, salt: bytes = b"") -> list[int]:
        """Hold and return the blocks of the longest cached prefix of the first ``num_tokens``, whole blocks only. Those
        of others with another ``salt`` are not found.
        """
        return self.take(digests_of(tokens, num_tokens, self.block_size, salt))

    def take(self, digests: Iterable[Digest]) -> list[int]:
        """Hold and return the blocks of these digests, up to the first that nobody can find."""
        found: list[int] = []
        for digest in digests:
            if (block := self._by_digest.get(digest)) is None:
                break
            self._join(digest)
            found.append(block)
        self.hold(found)
        return found

    def tell_new(self) -> deque[FoundBlock]:
        """Return a queue into which each block goes that others can find from now on. It holds as many as
        there are blocks, the last ones.
        """
        if self._found is None:
            self._found = deque(maxlen=len(self._names))
        return self._found

    def digest_of(self, block: int) -> Digest | None:
        """Return the digest by which the block is found; None: by none yet, or another one stands for its content."""
        return name if isinstance(name := self._names[block], bytes) else None

    def find(self, digest: Digest) -> int | None:
        """The block, held or cached, of that content. It is not held by being found."""
        return self._by_digest.get(digest)

    def hold(self, blocks: Iterable[int]) -> None:
        """Add a holder to each of these blocks, which are held or cached."""
        for block in blocks:
            if not self._holders[block]:
                self._num_here += 1
                self.pages.num_held += 1
                self._cached.remove(block)
            self._holders[block] += 1

    def publish(self, run: Run, blocks: Sequence[int], num_full: int) -> None:
        """The first ``num_full`` of a sequence's held blocks are full: let others find those that its run lacks."""
        names, new = self._names, blocks[len(run.blocks) : num_full]
        run.blocks.extend(new)
        for block in new:
            if names[block] is None:
                names[block] = run
                run.num_pending += 1
        if run.num_named == 0 and new:
            self._publish_first(run)
        if not run.is_alone:
            self._name(run, len(run.blocks))

    def _publish_first(self, run: Run) -> None:
        first = run.blocks[0]
        is_new = self._names[first] is run
        self._name(run, 1)
        run.is_alone = self._found is None and is_new and self._names[first] is not None
        if run.is_alone:
            self._alone[run.digest] = run
        else:
            self._join(run.digest)

    def _join(self, first: Digest) -> None:
        """A second sequence begins with that block: from now on the digests of all that begin so are needed."""
        if (run := self._alone.pop(first, None)) is not None:
            run.is_alone = False
            self._name(run, len(run.blocks) if run.num_pending else 0)

    def _name(self, run: Run, num_blocks: int) -> None:
        """Index the first blocks of a run by their digests, unless others with the same content are.

        Nobody can find those that others stand for: cached ones are free.
        """
        size, names, holders = self.block_size, self._names, self._holders
        for index in range(run.num_named, num_blocks):
            block = run.blocks[index]
            run.digest = chain(run.digest, run.tokens[index * size : (index + 1) * size])
            if names[block] is run:
                run.num_pending -= 1
                if run.digest not in self._by_digest:
                    names[block] = run.digest
                    self._by_digest[run.digest] = block
                    if self._found is not None:
                        self._found.append(FoundBlock(run.digest, run, index))
                    continue
                names[block] = None
                if not holders[block]:
                    self._cached.remove(block)
                    self._put_free(block)
        run.num_named = max(run.num_named, num_blocks)

    def unpublish(self, blocks: Sequence[int]) -> None:
        """Let nobody else find these blocks of a table that is held: what is in them is not to be relied on."""
        for block in reversed(blocks):
            if self._names[block] is not None:
                self._forget(block)

    def _put_free(self, block: int) -> None:
        """One that is neither held nor cached."""
        self._free.append(block)

    # --- what the pools of other services ask (`engines.memory.pages.Owner`) ------------------------------------------

    @property
    def num_idle_pages(self) -> int:
        return len(self._cached)

    @property
    def idle_since(self) -> float:
        return self.cached_since

    @property
    def cached_since(self) -> float:
        return self._cached.since

    def evict_page(self) -> None:
        self._put_free(self._evict_named())

    def owned_pages(self) -> Iterable[int]:
        return [*(self._held() if self._num_here else ()), *self._cached]

    def close(self) -> None:
        """Close the pool of a service that goes, with its prefixes. Raise ValueError if a block is held."""
        if self.is_used:
            raise ValueError(f"{self!r} is closed while blocks are held")
        while self.num_idle_pages:
            self.evict_page()
        self.pages.remove(self)

    def _held(self) -> set[int]:
        return set(compress(count(), self._holders))

    def check_invariants(self, *, with_pages: bool = True) -> None:
        """Raise AssertionError unless every block is in one state and the prefix index is right; after every event."""
        held, cached = self._held(), set(self._cached)
        assert cached.isdisjoint(held), "a cached block is held"
        assert len(held) == self._num_here, "held blocks are miscounted"
        names, digests, published = self._names, self._by_digest, set(compress(count(), self._names))
        assert cached <= published, "a cached block is not published"
        assert (held | published).isdisjoint(self._free_blocks()), "a free block is held, or published"
        assert [*map(names.__getitem__, digests.values())] == [*digests], "the prefix index is stale"
        runs = [name for name in filter(None, names) if type(name) is Run]
        assert len(published) - len(runs) == len(digests), "a digest is not indexed"
        assert all(run.is_alone and digest in digests for digest, run in self._alone.items()), "a run is lost"
        counts = Counter(runs).items() if runs else ()
        assert all(run.is_alone and run.num_pending == num for run, num in counts), "a run is miscounted"
        if with_pages:
            self.pages.check_invariants()

    def _free_blocks(self) -> Iterable[int]:
        return self._free
