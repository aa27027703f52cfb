"""vLLM's KV cache as views of our pages: what one process writes into its cache is in the memory that peers read.

vLLM has a tensor for each layer, in which a block's K and V lie in one piece each. In our pages all layers of a block
lie together. Attention kernels take the distance between blocks from the tensor, so a tensor with the distance of our
pages is all that it takes: nothing is copied when blocks travel.
"""

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

FEW_BLOCKS = 7  # of the cache that vLLM makes and our pages replace: no other axis of it has this size


@dataclass(frozen=True, slots=True)
class PagesRef:
    """Where to map an engine's pages: ``offset`` bytes into a file. A page holds one block, with all layers."""

    path: str
    offset: int
    num_pages: int
    page_bytes: int


def map_pages(ref: PagesRef) -> Tensor:
    """The pages, [num_pages * page_bytes] uint8, writable. The mapping lives as long as the tensor."""
    fd = os.open(ref.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        pages = mmap.mmap(fd, ref.offset + ref.num_pages * ref.page_bytes)
    finally:
        os.close(fd)
    return torch.frombuffer(pages, dtype=torch.uint8, offset=ref.offset)


def layer_view(pages: Tensor, page_bytes: int, layer: int, like: Tensor, num_blocks: int) -> Tensor:
    """Piece ``layer`` of every page, shaped like vLLM's own tensor ``like`` of ``num_blocks`` blocks.

    Raise ValueError if that is not a tensor of blocks, each of them in one piece.
    """
    axis = block_axis(like.shape, num_blocks)
    inner = [size for index, size in enumerate(like.shape) if index != axis]
    block_bytes = prod(inner) * like.element_size()
    if page_bytes % like.element_size() or (layer + 1) * block_bytes > page_bytes:
        raise ValueError(f"layer {layer} with blocks of {block_bytes} bytes is not in pages of {page_bytes} bytes")
    elements = pages.view(like.dtype)
    strides = _contiguous(inner)
    strides.insert(axis, page_bytes // like.element_size())
    shape = list(like.shape)
    shape[axis] = pages.numel() // page_bytes
    return elements.as_strided(shape, strides, layer * block_bytes // like.element_size())


def block_axis(shape: Sequence[int], num_blocks: int) -> int:
    """Which axis counts blocks: 0, or 1 where K and V are on axis 0. Raise ValueError if neither does."""
    for axis in (0, 1):
        if shape[axis] == num_blocks:
            return axis
    raise ValueError(f"no axis of a KV cache {list(shape)} counts {num_blocks} blocks")


def _contiguous(shape: Sequence[int]) -> list[int]:
    return [prod(shape[index + 1 :]) for index in range(len(shape))]
