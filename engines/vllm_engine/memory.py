"""vLLM's KV cache as views of our pages: what one process writes into its cache is in the memory that peers read.

vLLM has a tensor for each layer, whose axes lie in memory in the order that its attention wants. In our pages all
layers of a block lie together. Attention kernels take the distance between blocks from the tensor, so a tensor with the
distance of our pages is all that it takes: nothing is copied when blocks travel.
"""

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from kvtransfer.gpu.device_memory import DeviceMemory

FEW_BLOCKS = 7  # of the cache that vLLM makes and our pages replace: no other axis of it has this size


class Pages(Protocol):
    """An engine's pages, as its workers get them. A page holds one block, with all layers."""

    @property
    def page_bytes(self) -> int: ...

    def tensor(self) -> Tensor:
        """The pages, [num_pages * page_bytes] uint8, writable. They live as long as the tensor."""


@dataclass(frozen=True, slots=True)
class HostPages:
    """Pages that any process can map, ``offset`` bytes into a file."""

    path: str
    offset: int
    num_pages: int
    page_bytes: int

    def tensor(self) -> Tensor:
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            pages = mmap.mmap(fd, self.offset + self.num_pages * self.page_bytes)
        finally:
            os.close(fd)
        return torch.frombuffer(pages, dtype=torch.uint8, offset=self.offset)


@dataclass(frozen=True, slots=True)
class GpuPages:
    """Pages on the GPU of this process."""

    memory: DeviceMemory

    @property
    def page_bytes(self) -> int:
        return self.memory.layout.page_bytes

    def tensor(self) -> Tensor:
        from engines.torch_engine.gpu_memory import pages_tensor

        return pages_tensor(self.memory)


def layer_view(pages: Tensor, page_bytes: int, layer: int, like: Tensor, num_blocks: int) -> Tensor:
    """Piece ``layer`` of every page, shaped like vLLM's own tensor ``like`` of ``num_blocks`` blocks.

    A block is one piece there, with its axes in the order that they have in ``like``. Raise ValueError if that is not a
    tensor of blocks.
    """
    axis = block_axis(like.shape, num_blocks)
    block_bytes = like.numel() // num_blocks * like.element_size()
    if page_bytes % like.element_size() or (layer + 1) * block_bytes > page_bytes:
        raise ValueError(f"layer {layer} with blocks of {block_bytes} bytes is not in pages of {page_bytes} bytes")
    elements = pages.view(like.dtype)
    order = inner_order(like, axis)
    shape, strides = list(like.shape), [0] * like.dim()
    for place, inner in enumerate(order):
        strides[inner] = prod(like.shape[other] for other in order[place + 1 :])
    shape[axis], strides[axis] = pages.numel() // page_bytes, page_bytes // like.element_size()
    return elements.as_strided(shape, strides, layer * block_bytes // like.element_size())


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
