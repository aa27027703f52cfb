"""Lays KV blocks out in an engine's memory: equal pages, in each of which are blocks of one service.

Merged blocks (SeaLLM): a page holds the largest block of all services, and as many blocks of a service as go into it.
So a block's id means two indices, its page and its slot there, and whoever shares the memory shares it by the page. In
the paper a page is the largest block; here it may be up to two, lest services with a little smaller blocks waste half.
To everything but the engine that computes it a block is opaque bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import lcm

from mesh.wire.transfers import KVShape

ALIGNMENT = 64  # bytes; every page starts on a cache line
NEARLY = 0.05  # of a page: less is not worth a larger one
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
SCALE_BYTES = 4  # in int8, of K (or V) of one head of a token, behind it


def align(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def row_bytes(shape: KVShape) -> int:
    """Bytes of K (or V) of one head in one layer of a block. Raise ValueError on an unknown dtype."""
    itemsize = DTYPE_BYTES.get(shape.dtype)
    if itemsize is None:
        raise ValueError(f"KV dtype {shape.dtype!r} is unknown: want one of {', '.join(DTYPE_BYTES)}")
    return shape.block_size * (shape.head_dim * itemsize + (SCALE_BYTES if shape.dtype == "int8" else 0))


def block_bytes(shape: KVShape) -> int:
    """Bytes of one block: K and V of ``block_size`` tokens in all layers. Raise ValueError on an unknown dtype."""
    return shape.num_layers * 2 * shape.num_kv_heads * row_bytes(shape)


def page_bytes(block_sizes: Iterable[int], unit: int = 1) -> int:
    """The smallest page, of one largest block to two, in which the worst off of all services can use nearly as much of
    a page as in any. A multiple of ``unit``.
    """
    sizes = set(block_sizes)
    largest = max(sizes)
    numbers = ((size, number) for size in sizes for number in range(-(-largest // size), 2 * largest // size + 1))
    pages = sorted({-(-size * number // unit) * unit for size, number in numbers})
    used = {page: min(page // size * size / page for size in sizes) for page in pages}
    return next(page for page in pages if used[page] >= max(used.values()) - NEARLY)


@dataclass(frozen=True, slots=True)
class PageLayout:
    """The pages of a memory. ``num_pages`` pages of ``page_bytes``; at most ``most_slots`` blocks lie in one."""

    num_pages: int
    page_bytes: int
    most_slots: int

    @classmethod
    def of(cls, shapes: Iterable[KVShape], num_pages: int) -> "PageLayout":
        """Return the layout for blocks of these shapes: rows of all of them tile the memory."""
        shapes = list(shapes)
        sizes, unit = [block_bytes(shape) for shape in shapes], lcm(ALIGNMENT, *map(row_bytes, shapes))
        size = page_bytes(sizes, unit)
        return cls(num_pages, size, size // min(sizes))

    @classmethod
    def fitting(cls, shapes: Iterable[KVShape], memory_bytes: int) -> "PageLayout":
        """Return the layout with as many pages as fit. Raise ValueError if not even one does."""
        one = cls.of(shapes, 1)
        if memory_bytes < one.page_bytes:
            raise ValueError(f"{memory_bytes} bytes of KV memory hold no block of {one.page_bytes} bytes: give more")
        return cls(memory_bytes // one.page_bytes, one.page_bytes, one.most_slots)


@dataclass(frozen=True, slots=True)
class KVLayout:
    """The blocks of one service in an engine's pages: block ``b`` is slot ``b % slots`` of page ``b // slots``."""

    shape: KVShape
    pages: PageLayout

    @property
    def block_bytes(self) -> int:
        return block_bytes(self.shape)

    @property
    def slots(self) -> int:
        """Blocks in a page; 0 if the pages were not made for such blocks."""
        slots = self.pages.page_bytes // self.block_bytes
        return slots if slots <= self.pages.most_slots else 0

    @property
    def num_blocks(self) -> int:
        """Return what a service that has the memory for itself can hold."""
        return self.pages.num_pages * self.slots

    @property
    def num_tokens(self) -> int:
        return self.num_blocks * self.shape.block_size
