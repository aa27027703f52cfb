"""Attention that reads the paged cache in place: one call a layer for a batch of decodes and prefills together.

FlashAttention through torch (`torch.nn.attention.varlen`). Its tables name blocks by number and its pools have one
stride from block to block; `KVPool.paged` fits any layout of pages to that, as a block's number is the row where it
begins. Torch takes block tables with FlashAttention 3 only (Hopper, package flash-attn-3). FlexAttention of torch 2.13
would not do: it computes offsets into paged K and V in 32 bits, and pools of GPUs have more than 2**31 elements.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog
import torch
from torch import Tensor

from engines.scheduling.batch import Chunk
from engines.torch_engine.kv_pool import KVPool
from engines.torch_engine.layers.attention_kind import AttentionKind
from mesh.wire.transfers import KVShape

MAX_HEAD_DIM = 256

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Paging:
    """Places of a batch's keys. All tensors are int32, on the device of the pool.

    ``starts`` [requests + 1]: the first row of each; ``lengths`` [requests]: tokens to attend to; ``tables`` [requests,
    blocks]: their places (`KVPool.paged`). ``most_queries`` and ``most_keys`` bound what a request has.
    """

    starts: Tensor
    lengths: Tensor
    tables: Tensor
    most_queries: int
    most_keys: int


class PagedAttention(Protocol):
    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, paging: Paging, kind: AttentionKind) -> Tensor:
        """Attend over the paged cache. [rows, heads, head_dim]: each row sees the keys up to its own, the last row of a
        request all of them.
        """


@dataclass(frozen=True, slots=True)
class PagedLayout:
    """A batch in the order that it came in."""

    order: Sequence[int]
    paging: Paging
    attention: PagedAttention
    workspace_items: int = 0

    def attend(self, layer: int, queries: Tensor, pool: KVPool, workspace: Tensor, kind: AttentionKind) -> Tensor:
        return self.attention(queries, *pool.paged(layer), self.paging, kind).flatten(1)


class PagedPlanner:
    """Lays batches out for one pool."""

    def __init__(self, pool: KVPool, attention: PagedAttention) -> None:
        self._pool = pool
        self._attention = attention

    def plan(self, chunks: Sequence[Chunk]) -> PagedLayout:
        device, size = self._pool.device, self._pool.shape.block_size
        lengths = [chunk.start + len(chunk.tokens) for chunk in chunks]
        starts = [0]
        for chunk in chunks:
            starts.append(starts[-1] + len(chunk.tokens))
        width = max(-(-length // size) for length in lengths)
        tables = torch.tensor([padded(chunk.blocks, width) for chunk in chunks], device=device)
        paging = Paging(
            torch.tensor(starts, dtype=torch.int32, device=device),
            torch.tensor(lengths, dtype=torch.int32, device=device),
            self._pool.first_rows(tables).int(),
            max(len(chunk.tokens) for chunk in chunks),
            max(lengths),
        )
        return PagedLayout(range(len(chunks)), paging, self._attention)


def padded(blocks: Sequence[int], width: int) -> list[int]:
    """A block table cut or filled (with a block of its own, which is not read) to ``width``."""
    table = list(blocks[:width])
    return table + table[-1:] * (width - len(table))


def takes(shape: KVShape) -> bool:
    """Return whether FlashAttention takes such blocks."""
    return shape.dtype != "float32" and shape.head_dim <= MAX_HEAD_DIM and shape.head_dim % 8 == 0


def flash_attention(device: torch.device) -> PagedAttention | None:
    """Return torch's FlashAttention, if it can read paged caches on this device; a line in the log says why not."""
    activate = _activate()
    if activate is None:
        log.info("attention gathers the KV cache", reason=f"torch {torch.__version__} has no paged attention")
        return None
    if torch.cuda.get_device_capability(device)[0] != 9:
        log.info("attention gathers the KV cache", reason="FlashAttention 3 wants a GPU of the Hopper generation")
        return None
    try:
        activate("FA3")
    except (ImportError, RuntimeError) as error:
        log.info("attention gathers the KV cache", reason=f"no FlashAttention 3: {error}")
        return None
    return flash_paged


def _activate() -> Callable[[str], None] | None:
    try:
        from torch.nn.attention import activate_flash_attention_impl
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    is_paged = "block_table" in inspect.signature(varlen_attn).parameters
    return activate_flash_attention_impl if is_paged else None


def flash_paged(queries: Tensor, keys: Tensor, values: Tensor, paging: Paging, kind: AttentionKind) -> Tensor:
    """Causal attention by `torch.nn.attention.varlen.varlen_attn`, which has no softcap."""
    from torch.nn.attention.varlen import varlen_attn

    out = varlen_attn(
        queries,
        keys,
        values,
        paging.starts,
        None,
        paging.most_queries,
        paging.most_keys,
        scale=kind.scale,
        window_size=(-1 if kind.window is None else kind.window - 1, 0),
        enable_gqa=queries.shape[1] != keys.shape[2],
        seqused_k=paging.lengths,
        block_table=paging.tables,
    )
    assert isinstance(out, Tensor), "no auxiliary output was asked for"
    return out
