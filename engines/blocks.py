"""The block pool: which KV blocks are whose, and which still hold a prefix worth reusing. Accounting only, no tensors.

A block is free, held (by one or several requests: a shared prefix), or cached: nobody holds it, but it is full and its
content is known by the hash of all tokens up to its end, so that a later request with the same beginning can take it.
Cached blocks are given up oldest first when free ones run out.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

Digest = bytes
ROOT: Digest = b""


class OutOfBlocksError(RuntimeError):
    """More blocks were asked for than can be had; ask `BlockPool.can_allocate` first."""


def chain(parent: Digest, tokens: Sequence[int]) -> Digest:
    """Identity of a full block: its tokens and everything before them."""
    return blake2b(parent + array("I", tokens).tobytes(), digest_size=16).digest()


class BlockPool:
    """Hands out blocks ``0 .. num_blocks - 1`` of ``block_size`` tokens.

    ``on_reuse`` is told of a block before it gets new content.
    """

    def __init__(self, num_blocks: int, block_size: int, on_reuse: Callable[[int], None] | None = None) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._on_reuse = on_reuse
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # oldest first
        self._holders = [0] * num_blocks
        self._digests: list[Digest | None] = [None] * num_blocks
        self._by_digest: dict[Digest, int] = {}

    def __repr__(self) -> str:
        return (
            f"<BlockPool {self.num_held} held, {len(self._cached)} cached, {len(self._free)} free of {self.num_blocks}>"
        )

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now: free ones and cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def num_held(self) -> int:
        return self.num_blocks - self.num_free

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def can_allocate(self, count: int) -> bool:
        return count <= self.num_free

    def allocate(self, count: int) -> list[int]:
        """Hold ``count`` blocks with undefined content. Raise `OutOfBlocksError` (and hold none) if there are fewer."""
        if not self.can_allocate(count):
            raise OutOfBlocksError(f"{count} blocks wanted, {self.num_free} of {self.num_blocks} can be had")
        return [self._take() for _ in range(count)]

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            self._forget(block)
        self._holders[block] = 1
        if self._on_reuse is not None:
            self._on_reuse(block)
        return block

    def _forget(self, block: int) -> None:
        digest = self._digests[block]
        if digest is not None:
            self._digests[block] = None
            del self._by_digest[digest]

    def release(self, blocks: Iterable[int]) -> None:
        """Give up one hold on each block of a table; once cached, its tail is given up before its head."""
        for block in reversed(list(blocks)):
            if self._holders[block] == 0:
                raise ValueError(f"block {block} is released but nobody holds it")
            self._holders[block] -= 1
            if self._holders[block] == 0:
                if self._digests[block] is None:
                    self._free.append(block)
                else:
                    self._cached[block] = None

    def match(self, tokens: Sequence[int]) -> list[int]:
        """Hold and return the blocks of the longest cached prefix of ``tokens``, whole blocks only."""
        found = []
        for digest in self._digests_of(tokens):
            block = self._by_digest.get(digest)
            if block is None:
                break
            found.append(block)
        for block in found:
            self._holders[block] += 1
            self._cached.pop(block, None)
        return found

    def _digests_of(self, tokens: Sequence[int]) -> Iterable[Digest]:
        digest = ROOT
        for start in range(0, len(tokens) - self.block_size + 1, self.block_size):
            digest = chain(digest, tokens[start : start + self.block_size])
            yield digest

    def publish(self, block: int, parent: Digest, tokens: Sequence[int]) -> Digest:
        """A held block is now full of ``tokens`` that follow ``parent``: let others find it. Returns its digest."""
        digest = chain(parent, tokens)
        if self._digests[block] is None and digest not in self._by_digest:
            self._digests[block] = digest
            self._by_digest[digest] = block
        return digest

    def check_invariants(self) -> None:
        """Raise AssertionError unless every block is in exactly one state and the prefix index is consistent."""
        held = {block for block, holders in enumerate(self._holders) if holders > 0}
        free, cached = set(self._free), set(self._cached)
        assert len(free) == len(self._free), "a block is free twice"
        assert not (held | free) & cached, "a cached block is held or free"
        assert not held & free, "a held block is free"
        assert len(held) + len(free) + len(cached) == self.num_blocks, "a block is lost"
        assert all(self._digests[block] is not None for block in cached), "a cached block has no digest"
        assert all(self._digests[block] is None for block in free), "a free block has a digest"
        indexed = {block: digest for digest, block in self._by_digest.items()}
        assert all(self._digests[block] == digest for block, digest in indexed.items()), "the prefix index is stale"
        assert sum(digest is not None for digest in self._digests) == len(indexed), "a digest is not indexed"
