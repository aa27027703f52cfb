"""KV memory of services with different block shapes: merged blocks beside split blocks and a part for each (SeaLLM).

    python -m bench.papers.seallm.kv_pools

- merged: what engines do. Pages of the largest block; small blocks share one and are told apart by their slot.
- split: pieces of the greatest size that divides all blocks. A block is a list of pieces, anywhere.
- parts: each service has its share of the memory for itself. Tables and gathers are then as if it were alone.

Block tables: entries that a request needs. Gather: what a decode step spends on indices and on fetching K and V of all
layers, from a pool that has been in use for long, so that neighbours in a table are none in memory. Fit: how many
requests are held on average while requests come and go as memory allows.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from random import Random

import torch
from rich.console import Console
from torch import Tensor

from bench.harness.arguments import script_parser
from bench.harness.tables import make_console, make_table
from engines.memory.block_pool import BlockPool
from engines.memory.packed_pool import block_pool
from engines.memory.pages import PagePool
from engines.torch_engine.kv_pool import KVPool
from kvtransfer.layout import KVLayout, PageLayout, block_bytes, row_bytes
from mesh.wire.transfers import KVShape

BLOCK_SIZE = 16
SMOLLM2 = KVShape(num_layers=30, num_kv_heads=3, head_dim=64, block_size=BLOCK_SIZE, dtype="float32")
BYTE_LLAMA = KVShape(num_layers=4, num_kv_heads=2, head_dim=32, block_size=BLOCK_SIZE, dtype="float32")
QWEN2_5 = KVShape(num_layers=24, num_kv_heads=2, head_dim=64, block_size=BLOCK_SIZE, dtype="float32")
PAIRS = {
    "SmolLM2-135M and byte-llama": (SMOLLM2, BYTE_LLAMA),
    "SmolLM2-135M and Qwen2.5-0.5B": (SMOLLM2, QWEN2_5),
}
MEMORY_BYTES = 256 * 2**20
NUM_REQUESTS, CONTEXT = 8, 320  # tokens, of a decode step
REPEATS = 40
MIXES = (0.1, 0.5, 0.9)  # shares of the first service's requests
NUM_EVENTS = 20_000
USUAL_TOKENS, MOST_TOKENS = 400, 1600  # of a request


class MergedPool:
    """Reads blocks as engines do. For a service alone, a page is a block."""

    def __init__(self, shape: KVShape, memory: Tensor, page_bytes: int) -> None:
        self._pool = KVPool(shape, memory, page_bytes)

    def index(self, tables: Sequence[Sequence[int]]) -> Tensor:
        """Return what a step works out once, for all layers."""
        return self._pool.read_index(tables)

    def read(self, layer: int, index: Tensor, workspace: Tensor) -> Tensor:
        keys, _ = self._pool.read(layer, index, NUM_REQUESTS, workspace)
        return keys


class SplitPool:
    """Reads blocks of pieces: row ``r`` of a block is row ``r % rows`` of piece ``r // rows``; tables name pieces."""

    def __init__(self, shape: KVShape, memory: Tensor, piece_bytes: int) -> None:
        self._shape = shape
        self._piece_rows = piece_bytes // row_bytes(shape)
        self._num_pieces = block_bytes(shape) // piece_bytes
        items = shape.block_size * shape.head_dim
        self._rows = memory.view(getattr(torch, shape.dtype)).view(-1, items)
        self._head_steps = torch.arange(2 * shape.num_kv_heads)

    def index(self, tables: Sequence[Sequence[int]]) -> Tensor:
        """Return the first rows of pieces, ``[requests, blocks, pieces of a block]``."""
        return (torch.tensor(tables) * self._piece_rows).view(len(tables), -1, self._num_pieces)

    def read(self, layer: int, index: Tensor, workspace: Tensor) -> Tensor:
        rows = layer * 2 * self._shape.num_kv_heads + self._head_steps
        first = index[:, :, rows // self._piece_rows] + rows % self._piece_rows  # [requests, blocks, 2 * kv_heads]
        flat = first.permute(2, 0, 1).reshape(2, -1, len(index), index.shape[1]).transpose(1, 2).reshape(-1)
        gathered = workspace[: flat.numel() * self._rows.shape[1]].view(flat.numel(), -1)
        torch.index_select(self._rows, 0, flat, out=gathered)
        keys: Tensor = gathered.view(2, len(index), self._shape.num_kv_heads, -1, self._shape.head_dim)[0]
        return keys


def piece_bytes(shapes: Sequence[KVShape]) -> int:
    return gcd(*map(block_bytes, shapes))


# --- gather -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Way:
    """A method with block tables of requests. ``entries``: how many the table of one request has."""

    pool: MergedPool | SplitPool
    tables: list[list[int]]

    @property
    def entries(self) -> int:
        return len(self.tables[0])


def ways(shape: KVShape, shapes: Sequence[KVShape], memory: Tensor, random: Random) -> dict[str, Way]:
    """Return the same requests by each method, with blocks and pieces in random places."""
    num_blocks = CONTEXT // BLOCK_SIZE
    size, piece, layout = block_bytes(shape), piece_bytes(shapes), PageLayout.fitting(shapes, memory.numel())
    paged = memory[: layout.num_pages * layout.page_bytes]
    alone = memory[: memory.numel() // len(shapes) // size * size]

    def scattered(num_places: int, entries: int) -> list[list[int]]:
        places = random.sample(range(num_places), NUM_REQUESTS * entries)
        return [places[i * entries : (i + 1) * entries] for i in range(NUM_REQUESTS)]

    return {
        "merged": Way(
            MergedPool(shape, paged, layout.page_bytes), scattered(KVLayout(shape, layout).num_blocks, num_blocks)
        ),
        "split": Way(
            SplitPool(shape, memory[: memory.numel() // piece * piece], piece),
            scattered(memory.numel() // piece, num_blocks * size // piece),
        ),
        "parts": Way(MergedPool(shape, alone, size), scattered(alone.numel() // size, num_blocks)),
    }


def step_ms(way: Way, shape: KVShape, workspace: Tensor) -> tuple[float, float]:
    """Measure indices alone (those that are worked out once), and a step with all of its layers."""
    started = time.process_time()
    index = way.pool.index(way.tables)
    indexed = time.process_time()
    for layer in range(shape.num_layers):
        way.pool.read(layer, index, workspace)
    return (indexed - started) * 1e3, (time.process_time() - started) * 1e3


def measure_gathers(shape: KVShape, shapes: Sequence[KVShape]) -> dict[str, tuple[int, float, float]]:
    """Return table entries of a request, ms for indices and ms for a step, by method: medians of runs in turns."""
    random = Random(0)
    memory = torch.zeros(MEMORY_BYTES, dtype=torch.uint8)
    memory.random_(0, 64)  # bytes that are finite in every dtype, and pages that are there
    items = 2 * NUM_REQUESTS * CONTEXT * shape.num_kv_heads * shape.head_dim
    workspace = torch.empty(items, dtype=getattr(torch, shape.dtype))
    measured = ways(shape, shapes, memory, random)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
    for _ in range(REPEATS):
        for name, way in measured.items():
            times[name].append(step_ms(way, shape, workspace))
    medians = {name: map(statistics.median, zip(*each, strict=True)) for name, each in times.items()}
    return {name: (measured[name].entries, *both) for name, both in medians.items()}


# --- fit --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Share:
    """What a service takes from: a pool, and how many of the pool's pieces make a block."""

    pool: BlockPool
    num_pieces: int = 1


def merged(shapes: Sequence[KVShape]) -> list[Share]:
    """Count as engines do; shares are in the order of ``shapes``, here and below."""
    layout = PageLayout.fitting(shapes, MEMORY_BYTES)
    pages = PagePool(layout.num_pages)
    return [Share(block_pool(pages, BLOCK_SIZE, KVLayout(shape, layout).slots)) for shape in shapes]


def split(shapes: Sequence[KVShape]) -> list[Share]:
    piece = piece_bytes(shapes)
    pieces = BlockPool(PagePool(MEMORY_BYTES // piece), BLOCK_SIZE)
    return [Share(pieces, block_bytes(shape) // piece) for shape in shapes]


def parts(shapes: Sequence[KVShape]) -> list[Share]:
    part = MEMORY_BYTES // len(shapes)
    return [Share(BlockPool(PagePool(part // block_bytes(shape)), BLOCK_SIZE)) for shape in shapes]


def num_held(shares: Sequence[Share], first: float, num_events: int = NUM_EVENTS) -> float:
    """Count the requests held on average: they come in turn, and one at random ends when the next does not fit.

    ``first``: the part of the requests that is the first service's.
    """
    comes, goes = Random(1), Random(2)
    held: list[tuple[BlockPool, list[int]]] = []
    counts: list[int] = []
    for _ in range(num_events):
        share = shares[comes.random() >= first]
        num_tokens = min(MOST_TOKENS, comes.lognormvariate(0, 0.8) * USUAL_TOKENS)
        num_pieces = -(-round(num_tokens) // BLOCK_SIZE) * share.num_pieces
        while not share.pool.can_allocate(num_pieces):
            pool, blocks = held.pop(goes.randrange(len(held)))
            pool.release(blocks)
        held.append((share.pool, share.pool.allocate(num_pieces)))
        counts.append(len(held))
    return statistics.mean(counts[num_events // 2 :])


# --- tables -----------------------------------------------------------------------------------------------------------


def show_gathers(console: Console, title: str, shapes: Sequence[KVShape]) -> None:
    table = make_table(f"{title}: tables and gathers", ("blocks of", "method"), ("entries", "index ms", "step ms"))
    for name, shape in zip(title.split(" and "), shapes, strict=True):
        for method, (entries, index_ms, total_ms) in measure_gathers(shape, shapes).items():
            table.add_row(name, method, str(entries), f"{index_ms:.3f}", f"{total_ms:.2f}")
    console.print(table)


def show_fit(console: Console, title: str, shapes: Sequence[KVShape]) -> None:
    layout = PageLayout.fitting(shapes, MEMORY_BYTES)
    kept = [KVLayout(shape, layout).slots * block_bytes(shape) / layout.page_bytes for shape in shapes]
    console.print(f"{title}: pages of {layout.page_bytes} bytes, of which {kept[0]:.1%} and {kept[1]:.1%} are used")
    table = make_table(f"{title}: requests held", ("share of the first",), ("merged", "split", "parts"))
    for first in MIXES:
        counts = [num_held(method(shapes), first) for method in (merged, split, parts)]
        table.add_row(f"{first:.0%}", *(f"{count:.0f}" for count in counts))
    console.print(table)


def main() -> None:
    script_parser("bench.papers.seallm.kv_pools", __doc__).parse_args()
    torch.set_num_threads(1)
    console = make_console()
    for title, shapes in PAIRS.items():
        show_gathers(console, title, shapes)
        show_fit(console, title, shapes)


if __name__ == "__main__":
    main()
