"""Sorts the chunks of a batch into groups that one attention call a layer can serve.

Single tokens (decodes) read KV where it lies if there is a kernel for it. Without one, those of requests with like
context lengths share a gather, padded to the longest, as long as what they gather stays in the cache. A longer chunk is
a group of its own. Without a kernel it gathers, and is computed in tiles of queries, so that most of the upper triangle
is never touched. Queries that share a KV head are rows of one product (decodes) or batch entries.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engines.scheduling.batch import Chunk
from engines.torch_engine.kv_pool import KVPool
from engines.torch_engine.layers.attention_kind import AttentionKind, attend, causal
from engines.torch_engine.layers.cpu_kernels import attend_chunk_in_place, attend_in_place, attends, attends_chunks

TILE = 128  # queries


class RowGroup(Protocol):
    """Consecutive rows of the batch."""

    @property
    def num_rows(self) -> int: ...

    @property
    def num_gathered(self) -> int:
        """Rows that `KVPool.read` gathers."""

    def attend(self, layer: int, queries: Tensor, pool: KVPool, workspace: Tensor, kind: AttentionKind) -> Tensor:
        """Attend for all rows. [rows, heads, head_dim] to [rows, heads * head_dim], over the KV in ``pool``."""


@dataclass(frozen=True, slots=True)
class DecodesInPlace:
    """One row a request. ``tables`` [requests, blocks] (`KVPool.first_rows`) and ``lengths`` [requests], int64."""

    tables: Tensor
    lengths: Tensor

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    @property
    def num_gathered(self) -> int:
        return 0

    def attend(self, layer: int, queries: Tensor, pool: KVPool, workspace: Tensor, kind: AttentionKind) -> Tensor:
        return attend_in_place(queries, pool.rows(layer), self.tables, self.lengths, pool.shape.num_kv_heads, kind)


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """One row a request. ``index``: of `KVPool.read`; ``masks`` [requests, 1, 1, tokens], by windows of the model's
    layers: None where nothing is hidden.
    """

    index: Tensor
    num_requests: int
    num_tokens: int
    masks: Mapping[int | None, Tensor | None]

    @property
    def num_rows(self) -> int:
        return self.num_requests

    @property
    def num_gathered(self) -> int:
        return self.index.numel()

    def attend(self, layer: int, queries: Tensor, pool: KVPool, workspace: Tensor, kind: AttentionKind) -> Tensor:
        keys, values = pool.read(layer, self.index, self.num_requests, workspace)
        num_kv_heads = keys.shape[1]
        keys, values = keys[:, :, : self.num_tokens], values[:, :, : self.num_tokens]
        grouped = queries.view(len(queries), num_kv_heads, -1, queries.shape[-1])
        out = attend(grouped, keys, values, self.masks[kind.window], kind)
        return out.reshape(self.num_requests, -1)


@dataclass(frozen=True, slots=True)
class PrefillInPlace:
    """A chunk of a prompt that reads KV in place. ``num_rows`` tokens of one request after ``start`` earlier ones.
    ``table`` [blocks]: `KVPool.first_rows`.
    """

    table: Tensor
    num_rows: int
    start: int

    @property
    def num_gathered(self) -> int:
        return 0

    def attend(self, layer: int, queries: Tensor, pool: KVPool, workspace: Tensor, kind: AttentionKind) -> Tensor:
        return attend_chunk_in_place(queries, pool.rows(layer), self.table, self.start, pool.shape.num_kv_heads, kind)


@dataclass(frozen=True, slots=True)
class PrefillGroup:
    """A chunk of a prompt whose KV is gathered. ``num_rows`` tokens of one request after ``start`` earlier ones."""

    index: Tensor
    num_rows: int
    start: int

    @property
    def num_gathered(self) -> int:
        return self.index.numel()

    def attend(self, layer: int, queries: Tensor, pool: KVPool, workspace: Tensor, kind: AttentionKind) -> Tensor:
        keys, values = pool.read(layer, self.index, 1, workspace)
        num_kv_heads = keys.shape[1]
        grouped = _by_kv_head(queries, num_kv_heads)
        shared = (num_kv_heads, grouped.shape[1], -1, -1)
        keys, values = keys[0, :, None].expand(shared), values[0, :, None].expand(shared)
        out = torch.empty_like(queries)
        heads = _by_kv_head(out, num_kv_heads)
        for first in range(0, self.num_rows, TILE):
            last = min(first + TILE, self.num_rows)
            begin, seen = kind.first_seen(self.start + first), self.start + last
            heads[:, :, first:last] = attend(
                grouped[:, :, first:last],
                keys[:, :, begin:seen],
                values[:, :, begin:seen],
                causal(last - first, seen - begin, queries, kind.window),
                kind,
            )
        return out.flatten(1)


def _by_kv_head(x: Tensor, num_kv_heads: int) -> Tensor:
    """View [rows, heads, head_dim] as [kv_heads, heads / kv_heads, rows, head_dim]."""
    return x.view(len(x), num_kv_heads, -1, x.shape[-1]).permute(1, 2, 0, 3)


def decode_mask(lengths: Tensor, num_tokens: int, window: int | None, dtype: torch.dtype) -> Tensor:
    """Additive mask [requests, 1, 1, tokens]: requests of ``lengths`` [requests, 1] see the last ``window`` tokens."""
    places = torch.arange(num_tokens, device=lengths.device)
    is_seen = places < lengths
    if window is not None:
        is_seen &= places >= lengths - window
    mask = torch.zeros(is_seen.shape, dtype=dtype, device=lengths.device).masked_fill_(~is_seen, float("-inf"))
    return mask[:, None, None, :]


class Layout(Protocol):
    """The order of a batch's chunks in its rows, and how these attend. ``workspace_items``: what `attend` needs."""

    @property
    def order(self) -> Sequence[int]: ...

    @property
    def workspace_items(self) -> int: ...

    def attend(self, layer: int, queries: Tensor, pool: KVPool, workspace: Tensor, kind: AttentionKind) -> Tensor:
        """Attend for all rows of the batch. [rows, heads, head_dim] to [rows, heads * head_dim], over the KV in
        ``pool``.
        """


@dataclass(frozen=True, slots=True)
class GroupedLayout:
    """Each stretch of rows is a group."""

    order: Sequence[int]
    groups: Sequence[RowGroup]
    workspace_items: int  # the largest gather of a group

    def attend(self, layer: int, queries: Tensor, pool: KVPool, workspace: Tensor, kind: AttentionKind) -> Tensor:
        if len(self.groups) == 1:
            return self.groups[0].attend(layer, queries, pool, workspace, kind)
        out, row = [], 0
        for group in self.groups:
            out.append(group.attend(layer, queries[row : row + group.num_rows], pool, workspace, kind))
            row += group.num_rows
        return torch.cat(out)


class Planner:
    """Lays batches out for one pool. ``group_bytes`` bounds what a group of decodes gathers in a layer; ``windows`` are
    those that the model's layers have.
    """

    def __init__(
        self, pool: KVPool, dtype: torch.dtype, group_bytes: int, windows: Collection[int | None] = (None,)
    ) -> None:
        self._pool = pool
        self._windows = windows
        self._dtype = dtype
        shape = pool.shape
        on_cpu = pool.device.type == "cpu"
        self._in_place = on_cpu and attends(dtype, shape.head_dim)
        self._chunks_in_place = on_cpu and attends_chunks(dtype, shape.head_dim)
        block_items = 2 * shape.num_kv_heads * shape.block_size * shape.head_dim  # a block's K and V of one layer
        self._group_blocks = group_bytes // (block_items * dtype.itemsize)

    def plan(self, chunks: Sequence[Chunk]) -> Layout:
        """Decodes first, shortest context first, then the longer chunks."""
        lengths = [chunk.start + len(chunk.tokens) for chunk in chunks]
        decodes = sorted((i for i in range(len(chunks)) if len(chunks[i].tokens) == 1), key=lengths.__getitem__)
        prefills = [i for i in range(len(chunks)) if len(chunks[i].tokens) > 1]
        groups: list[RowGroup] = [
            self._decodes([chunks[i] for i in part], [lengths[i] for i in part])
            for part in ([decodes] if self._in_place and decodes else self._split(decodes, lengths))
        ]
        groups += [self._prefill(chunks[i]) for i in prefills]
        row_items = self._pool.shape.block_size * self._pool.shape.head_dim
        items = max(group.num_gathered for group in groups) * row_items
        return GroupedLayout([*decodes, *prefills], groups, items)

    def _split(self, decodes: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
        parts: list[list[int]] = []
        for i in decodes:
            if not parts or (len(parts[-1]) + 1) * self._blocks(lengths[i]) > self._group_blocks:
                parts.append([])
            parts[-1].append(i)
        return parts

    def _blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._pool.shape.block_size)

    def _decodes(self, chunks: Sequence[Chunk], lengths: Sequence[int]) -> RowGroup:
        num_blocks = self._blocks(lengths[-1])
        tables = [_padded(chunk.blocks, num_blocks) for chunk in chunks]
        if self._in_place:
            return DecodesInPlace(self._pool.first_rows(torch.tensor(tables)), torch.tensor(lengths))
        lasts = torch.tensor(lengths)[:, None]
        masks = {window: self._mask(lasts, lengths[0], window) for window in self._windows}
        return DecodeGroup(self._pool.read_index(tables), len(chunks), lengths[-1], masks)

    def _mask(self, lengths: Tensor, shortest: int, window: int | None) -> Tensor | None:
        """What is hidden from requests of ``lengths`` [requests, 1]; None if nothing is."""
        longest = int(lengths[-1])
        if shortest == longest and (window is None or window >= longest):
            return None
        return decode_mask(lengths, longest, window, self._dtype).to(self._pool.device)

    def _prefill(self, chunk: Chunk) -> RowGroup:
        num_tokens = len(chunk.tokens)
        table = chunk.blocks[: self._blocks(chunk.start + num_tokens)]
        if self._chunks_in_place:
            return PrefillInPlace(self._pool.first_rows(torch.tensor(table)), num_tokens, chunk.start)
        return PrefillGroup(self._pool.read_index([table]), num_tokens, chunk.start)


def _padded(blocks: Sequence[int], num_blocks: int) -> list[int]:
    """A block table cut or filled (with a block of its own, masked later) to ``num_blocks``."""
    table = list(blocks[:num_blocks])
    return table + table[-1:] * (num_blocks - len(table))
