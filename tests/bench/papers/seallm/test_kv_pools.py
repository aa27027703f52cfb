"""The methods that the bench compares hold and find the same."""

import random

import pytest
import torch

from bench.papers.seallm.kv_pools import (
    NUM_REQUESTS,
    PAIRS,
    MergedPool,
    SplitPool,
    merged,
    num_held,
    parts,
    piece_bytes,
    split,
)
from kvtransfer.layout import block_bytes, row_bytes
from mesh.wire.transfers import KVShape

SIZE = 4
SHAPES = (KVShape(6, 2, 8, SIZE, "float32"), KVShape(5, 3, 16, SIZE, "float32"))


@pytest.mark.parametrize("shape", SHAPES)
def test_split_and_whole_blocks_yield_the_same_keys(shape: KVShape):
    dice, size, piece = random.Random(0), block_bytes(shape), piece_bytes(SHAPES)
    assert piece < size
    assert piece % row_bytes(shape) == 0
    num_blocks, pieces = 3, size // piece
    content = torch.randint(0, 100, (NUM_REQUESTS * num_blocks, size), dtype=torch.uint8)
    whole = torch.zeros(2 * len(content) * size, dtype=torch.uint8)
    pieced = torch.zeros_like(whole)
    blocks = dice.sample(range(2 * len(content)), len(content))
    places = dice.sample(range(len(pieced) // piece), len(content) * pieces)
    whole.view(-1, size)[blocks] = content
    pieced.view(-1, piece)[places] = content.view(-1, piece)
    tables = [blocks[i * num_blocks : (i + 1) * num_blocks] for i in range(NUM_REQUESTS)]
    split_tables = [places[i * num_blocks * pieces : (i + 1) * num_blocks * pieces] for i in range(NUM_REQUESTS)]
    workspaces = torch.empty(2, 2 * NUM_REQUESTS * num_blocks * SIZE * shape.num_kv_heads * shape.head_dim)
    pools = MergedPool(shape, whole, size), SplitPool(shape, pieced, piece)
    for layer in range(shape.num_layers):
        keys, split_keys = (
            pool.read(layer, pool.index(table), workspace)
            for pool, table, workspace in zip(pools, (tables, split_tables), workspaces, strict=True)
        )
        assert torch.equal(keys, split_keys)


def test_memory_that_is_shared_holds_more_than_parts_of_it():
    for shapes in PAIRS.values():
        whole, pieces, each = (num_held(method(shapes), 0.9, num_events=1000) for method in (merged, split, parts))
        assert each < 0.7 * whole
        assert whole < 1.1 * pieces
