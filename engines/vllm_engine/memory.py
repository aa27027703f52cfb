"""vLLM's KV cache as views of our pages: what one process writes into its cache is in the memory that peers read.

vLLM has a tensor for each layer, whose axes lie in memory in the order that its attention wants. In our pages all
layers of a block lie together. Attention kernels take the distance between blocks from the tensor, so a tensor with the
distance of our pages is all that it takes: nothing is copied when blocks travel.

Where services share pages, some have several blocks in one, and pages may end with bytes that none of theirs needs. So
vLLM is told that blocks lie closer than they do: every place where one might begin is a block to it, and our blocks are
some of these (`BlockStarts`).
"""

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Protocol

import torch
from torch import Tensor

from kvtransfer.gpu.device_memory import DeviceMemory

FEW_BLOCKS = 7  # of the cache that vLLM makes and our pages replace: no other axis of it has this size


@dataclass(frozen=True, slots=True)
class BlockStarts:
    """Where the blocks of one service begin: ``slots`` of them in each page, one after the other."""

    page_bytes: int
    block_bytes: int
    slots: int

    @property
    def step_bytes(self) -> int:
        """Return how far places lie apart: every block begins at one of them."""
        return self.page_bytes if self.slots == 1 else gcd(self.page_bytes, self.block_bytes)

    def of(self, block: int) -> int:
        """Return the number of a block's place."""
        page, slot = divmod(block, self.slots)
        return (page * self.page_bytes + slot * self.block_bytes) // self.step_bytes


class Pages(Protocol):
    """An engine's pages, as its workers get them."""

    @property
    def places(self) -> BlockStarts: ...

    def tensor(self) -> Tensor:
        """The pages, [num_pages * page_bytes] uint8, writable. They live as long as the tensor."""


@dataclass(frozen=True, slots=True)
class HostPages:
    """Pages that any process can map, ``offset`` bytes into a file."""

    path: str
    offset: int
    num_pages: int
    places: BlockStarts

    def tensor(self) -> Tensor:
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            pages = mmap.mmap(fd, self.offset + self.num_pages * self.places.page_bytes)
        finally:
            os.close(fd)
        return torch.frombuffer(pages, dtype=torch.uint8, offset=self.offset)


@dataclass(frozen=True, slots=True)
class GpuPages:
    """Pages on the GPU of this process."""

    memory: DeviceMemory
    places: BlockStarts

    def tensor(self) -> Tensor:
        from engines.torch_engine.gpu_memory import pages_tensor

        return pages_tensor(self.memory)


def layer_view(pages: Tensor, places: BlockStarts, layer: int, like: Tensor, num_blocks: int) -> Tensor:
    """Piece ``layer`` of the block at every place, shaped like vLLM's own tensor ``like`` of ``num_blocks`` blocks.

    A block is one piece there, with its axes in the order that they have in ``like``. Raise ValueError if that is not a
    tensor of blocks.
    """
    axis = block_axis(like.shape, num_blocks)
    layer_bytes, step_bytes = like.numel() // num_blocks * like.element_size(), places.step_bytes
    if step_bytes % like.element_size() or (layer + 1) * layer_bytes > places.block_bytes:
        problem = f"layer {layer} of {layer_bytes} bytes is not in blocks of {places.block_bytes} bytes"
        raise ValueError(f"{problem}, {step_bytes} apart")
    elements = pages.view(like.dtype)
    order = inner_order(like, axis)
    shape, strides = list(like.shape), [0] * like.dim()
    for place, inner in enumerate(order):
        strides[inner] = prod(like.shape[other] for other in order[place + 1 :])
    num_places = (pages.numel() - (layer + 1) * layer_bytes) // step_bytes + 1
    shape[axis], strides[axis] = num_places, step_bytes // like.element_size()
    return elements.as_strided(shape, strides, layer * layer_bytes // like.element_size())


def block_axis(shape: Sequence[int], num_blocks: int) -> int:
    """Return which axis counts blocks: 0, or 1 where K and V are on axis 0. Raise ValueError if neither does."""
    for axis in (0, 1):
        if shape[axis] == num_blocks:
            return axis
    raise ValueError(f"no axis of a KV cache {list(shape)} counts {num_blocks} blocks")


def inner_order(like: Tensor, axis: int) -> list[int]:
    """The axes within a block as they lie in memory, the outermost first."""
    strides = like.stride()
    return sorted((inner for inner in range(like.dim()) if inner != axis), key=lambda inner: -strides[inner])


def block_form(like: Tensor, num_blocks: int) -> str:
    """Return how the axes within a block lie: `0123` without the axis of blocks, unless they are transposed."""
    axis = block_axis(like.shape, num_blocks)
    return "".join(map(str, inner_order(like, axis)))


def split_form(layout: str, num_workers: int) -> str:
    """Return how workers divide a block between them; empty if it is what one worker alone would make of it. That is
    so where heads lie apart within a block, and each worker has its own side by side. ``layout`` is vLLM's name for
    the order of axes, such as LBHNC for layers, blocks, heads, tokens and what they hold.
    """
    return "" if num_workers == 1 or "BH" in layout else f"split{num_workers}"
