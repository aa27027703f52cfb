"""The KV pool as a tensor. One block is ``[layers, 2, kv_heads, block_size, head_dim]``, contiguous, K before V.

With the head outside the token, a head's K of one block is one row, so that a single gather per layer yields K and V as
attention wants them: ``[2, requests, kv_heads, tokens, head_dim]``.

Blocks lie in pages that hold one or several of them, and rows tile pages: where a block begins is a matter of its page
and of its slot there.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engines.torch_engine.layers.cpu_kernels import store, stores
from kvtransfer.layout import block_bytes, row_bytes
from mesh.wire.transfers import KVShape


class KVPool:
    """Reads and writes the blocks that lie in ``memory``, a flat uint8 tensor of whole pages of ``page_bytes``."""

    def __init__(self, shape: KVShape, memory: Tensor, page_bytes: int) -> None:
        if memory.numel() == 0 or memory.numel() % page_bytes:
            raise ValueError(
                f"KV memory of {memory.numel()} bytes is not a whole number of pages of {page_bytes} bytes"
            )
        if page_bytes < block_bytes(shape) or page_bytes % row_bytes(shape):
            raise ValueError(f"pages of {page_bytes} bytes are not made for blocks of {block_bytes(shape)} bytes")
        self.shape = shape
        self.device = memory.device
        dtype = torch.uint8 if shape.dtype == "int8" else getattr(torch, shape.dtype)
        flat, heads, size = memory.view(dtype), shape.num_kv_heads, shape.block_size
        self._width = width = row_bytes(shape) // size // flat.itemsize  # elements of a head of a token
        self._block_rows = shape.num_layers * 2 * heads  # rows of [block_size, width]
        self._slots = page_bytes // block_bytes(shape)
        page_rows = page_bytes // row_bytes(shape)
        self._gap_rows = page_rows - self._slots * self._block_rows  # after the last block of a page
        head_rows, token_rows = flat.view(-1, size * width), flat.view(-1, width)
        layers = range(shape.num_layers)
        self._heads = [head_rows[layer * 2 * heads :] for layer in layers]
        self._tokens = [token_rows[layer * 2 * heads * size :] for layer in layers]
        self._head_steps = torch.arange(2 * heads, device=self.device)

    def write_index(self, blocks: Tensor, offsets: Tensor) -> Tensor:
        """Return where the tokens at ``offsets`` [n] of ``blocks`` [n] go, for `write`: [n * 2 * kv_heads]."""
        size = self.shape.block_size
        token = self._first_rows(blocks) * size + offsets
        return (token[:, None] + self._head_steps * size).view(-1)

    def _first_rows(self, blocks: Tensor) -> Tensor:
        """Return the rows at which blocks begin."""
        rows = blocks * self._block_rows
        return rows + blocks // self._slots * self._gap_rows if self._gap_rows else rows

    def write(self, layer: int, index: Tensor, kv: Tensor) -> None:
        """Store ``kv`` [n, 2 * kv_heads, head_dim]."""
        if stores(kv):
            store(kv, self._tokens[layer], index)
        else:
            self._tokens[layer].index_copy_(0, index, kv.reshape(index.numel(), -1).to(self._tokens[layer].dtype))

    def first_rows(self, tables: Tensor) -> Tensor:
        """Return where blocks begin in `rows` and `paged`."""
        return self._first_rows(tables)

    def rows(self, layer: int) -> Tensor:
        """Rows ``[*, block_size, width]``: from where a block begins, the keys of each head, then the values.

        In int8 they are bytes, and four more than the head's elements: their scale.
        """
        return self._heads[layer].view(-1, self.shape.block_size, self._width)

    def paged(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of a layer in place, views ``[places, block_size, kv_heads, head_dim]``.

        A block is a place: that of its `first_rows`. Places overlap, as one begins at every row of the pool.
        """
        rows, heads, (size, dim) = (
            self._heads[layer],
            self.shape.num_kv_heads,
            (self.shape.block_size, self.shape.head_dim),
        )
        shape, strides = (len(rows) - 2 * heads + 1, size, heads, dim), (size * dim, dim, size * dim, 1)
        keys, values = (
            rows.as_strided(shape, strides, rows.storage_offset() + part * heads * size * dim) for part in range(2)
        )
        return keys, values

    def read_index(self, tables: Sequence[Sequence[int]]) -> Tensor:
        """Return the index for `read` of requests whose block tables have one length: [2 * requests * kv_heads *
        blocks].
        """
        blocks = self._first_rows(torch.tensor(tables, device=self.device))
        steps = self._head_steps.view(2, 1, -1, 1)
        return (blocks[None, :, None, :] + steps).reshape(-1)

    def read(self, layer: int, index: Tensor, num_requests: int, workspace: Tensor) -> tuple[Tensor, Tensor]:
        """K and V as ``[requests, kv_heads, tokens, head_dim]``, views of ``workspace``, in its dtype."""
        rows, row_items = self._heads[layer], self.shape.block_size * self.shape.head_dim
        gathered = workspace[: index.numel() * row_items].view(index.numel(), row_items)
        if rows.dtype == workspace.dtype:
            torch.index_select(rows, 0, index, out=gathered)
        else:
            gathered.copy_(self._widened(rows.index_select(0, index)))
        keys, values = gathered.view(2, num_requests, self.shape.num_kv_heads, -1, self.shape.head_dim).unbind()
        return keys, values

    def _widened(self, rows: Tensor) -> Tensor:
        """Rows of fewer bits as floats ``[n, block_size * head_dim]``."""
        if self.shape.dtype != "int8":
            return rows.float()
        dim, tokens = self.shape.head_dim, rows.view(len(rows), -1, self._width)
        codes, scales = tokens[..., :dim].view(torch.int8), tokens[..., dim:].contiguous().view(torch.float32)
        return (codes * scales).flatten(1)
