"""Decode steps as graphs: a step of many small kernels costs the processor one launch, or one list of calls.

A graph computes what it was captured with: the same kernels over the same addresses. So batches are filled up to a
bucket of requests and of blocks of context, and there is a graph for each pair that was met, captured when it is met
first. Rows that fill up repeat the last request: they compute and store just what it does, at the same places. On
processors each row takes its time, so batches are not filled up there. Room for blocks costs nothing: it is not read.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.scheduling.batch import Chunk
from engines.torch_engine.decoder import Decoder
from engines.torch_engine.kv_pool import KVPool
from engines.torch_engine.layers.attention import DecodeGroup, DecodesInPlace, GroupedLayout, Layout, decode_mask
from engines.torch_engine.layers.attention_kind import AttentionKind
from engines.torch_engine.layers.paged_attention import PagedAttention, PagedLayout, Paging, padded

MOST_REQUESTS = 256
MOST_BY_KERNELS = 32  # requests: beside more, what is between kernels counts little
MOST_GRAPHS = 64
MOST_LISTS = 128  # of graphs that are lists of calls

Replay = Callable[[], None]
Capture = Callable[[Callable[[], Tensor]], tuple[Replay, Tensor]]


def bucket(number: int) -> int:
    """The smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24 ... that is not below: at most a third is computed in vain."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if power >= 4 and number <= power * 3 // 4 else power


def coarse_bucket(number: int) -> int:
    """The smallest of 1, 4, 16, 64 ... that is not below."""
    return 1 << ((number - 1).bit_length() + 1) // 2 * 2


def capture_cuda(run: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
    """Capture what ``run`` launches. Runs it before, as torch asks: what is made once is made then."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.current_stream().synchronize()
    graph = torch.cuda.CUDAGraph()
    # Other threads allocate meanwhile: they load weights of another service.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        out = run()
    return graph.replay, out


@dataclass(frozen=True, slots=True)
class Inputs:
    """The addresses that a graph reads: tokens, positions, lengths [requests], and places of blocks."""

    tokens: Tensor
    positions: Tensor
    write_index: Tensor
    lengths: Tensor
    tables: Tensor  # [requests, blocks] of what reads in place, else `KVPool.read_index`
    masks: Mapping[int | None, Tensor]  # [requests, 1, 1, tokens], of what is gathered, by windows of layers


@dataclass(frozen=True, slots=True)
class Graph:
    inputs: Inputs
    replay: Replay
    logits: Tensor  # [requests, vocabulary]
    kept: Sequence[object]  # what else it reads and writes


class DecodeGraphs:
    """Captured decode steps of one model. ``paged`` as the model has it. ``by_kernels``: our kernels for processors
    compute them, and read KV in place.
    """

    def __init__(
        self,
        decoder: Decoder,
        pool: KVPool,
        paged: PagedAttention | None,
        capture: Capture,
        *,
        by_kernels: bool = False,
    ) -> None:
        self._decoder = decoder
        self._pool = pool
        self._paged = paged
        self._capture = capture
        self._by_kernels = by_kernels
        self._most_requests = MOST_BY_KERNELS if by_kernels else MOST_REQUESTS
        self._most_graphs = MOST_LISTS if by_kernels else MOST_GRAPHS
        self._dtype: torch.dtype = getattr(torch, pool.shape.dtype)
        self._graphs: OrderedDict[tuple[int, int], Graph] = OrderedDict()

    def __len__(self) -> int:
        return len(self._graphs)

    def logits(self, chunks: Sequence[Chunk]) -> Tensor | None:
        """Return the logits of each chunk [chunks, vocabulary], valid until the next call; None if the batch is not all
        decodes.
        """
        if len(chunks) > self._most_requests or not all(_is_decode(chunk) for chunk in chunks):
            return None
        size = self._pool.shape.block_size
        num_blocks = max(-(-(chunk.start + 1) // size) for chunk in chunks)
        key = bucket(len(chunks)), bucket(num_blocks)
        if self._by_kernels:
            key = len(chunks), coarse_bucket(num_blocks)
        values = self._values([*chunks, *[chunks[-1]] * (key[0] - len(chunks))], key[1])
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._make(values, key[1] * size)
            if len(self._graphs) > self._most_graphs:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        for place, value in zip(_tensors(graph.inputs), _tensors(values), strict=True):
            place.copy_(value)
        graph.replay()
        return graph.logits[: len(chunks)]

    def _values(self, chunks: Sequence[Chunk], width: int) -> Inputs:
        pool, size = self._pool, self._pool.shape.block_size
        rows = [[chunk.tokens[0], chunk.start, chunk.blocks[chunk.start // size]] for chunk in chunks]
        tokens, positions, blocks = torch.tensor(rows).t().contiguous().to(pool.device)
        tables = [padded(chunk.blocks, width) for chunk in chunks]
        lengths, write_index = positions + 1, pool.write_index(blocks, positions % size)
        if self._by_kernels:
            return Inputs(tokens, positions, write_index, lengths, pool.first_rows(torch.tensor(tables)), {})
        windows = self._decoder.windows if self._paged is None else ()
        masks = {window: decode_mask(lengths[:, None], width * size, window, self._dtype) for window in windows}
        places = pool.read_index(tables)
        if self._paged is not None:
            places = pool.first_rows(torch.tensor(tables, device=pool.device)).int()
        return Inputs(tokens, positions, write_index, lengths.int(), places, masks)

    def _make(self, inputs: Inputs, most_keys: int) -> Graph:
        layout = self._layout(inputs, most_keys)
        rows = torch.arange(len(inputs.tokens), device=self._pool.device)

        def run() -> Tensor:
            hidden = self._decoder.compute(inputs.tokens, inputs.positions, inputs.write_index, layout, rows)
            return self._decoder.logits(hidden)

        replay, logits = self._capture(run)
        return Graph(inputs, replay, logits, (layout, rows))

    def _layout(self, inputs: Inputs, most_keys: int) -> Layout:
        number = len(inputs.tokens)
        if self._by_kernels:
            return GroupedLayout(range(number), [DecodesInPlace(inputs.tables, inputs.lengths)], 0)
        if self._paged is not None:
            starts = torch.arange(number + 1, dtype=torch.int32, device=self._pool.device)
            paging = Paging(starts, inputs.lengths, inputs.tables, 1, most_keys)
            return PagedLayout(range(number), paging, self._paged)
        group = DecodeGroup(inputs.tables, number, most_keys, inputs.masks)
        items = inputs.tables.numel() * self._pool.shape.block_size * self._pool.shape.head_dim
        workspace = torch.empty(items, dtype=self._dtype, device=self._pool.device)
        return OwnWorkspace(GroupedLayout(range(number), [group], items), workspace)


@dataclass(frozen=True, slots=True)
class OwnWorkspace:
    """A layout with a workspace that stays where it is."""

    layout: GroupedLayout
    workspace: Tensor
    workspace_items: int = 0

    @property
    def order(self) -> Sequence[int]:
        return self.layout.order

    def attend(self, layer: int, queries: Tensor, pool: KVPool, workspace: Tensor, kind: AttentionKind) -> Tensor:
        return self.layout.attend(layer, queries, pool, self.workspace, kind)


def _is_decode(chunk: Chunk) -> bool:
    """One of an adapter is none: which ones there are differs from step to step."""
    return len(chunk.tokens) == 1 and chunk.draw is not None and chunk.prompt_logprobs is None and not chunk.adapter


def _tensors(inputs: Inputs) -> list[Tensor]:
    return [inputs.tokens, inputs.positions, inputs.write_index, inputs.lengths, inputs.tables, *inputs.masks.values()]
