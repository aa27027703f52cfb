"""Rows of blocks, wherever their pages and slots are: what is written is read, and lies where transfers look for it."""

import random

import pytest
import torch

from engines.torch_engine.kv_pool import KVPool
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from mesh.wire.transfers import KVShape
from tests.engines.torch_engine.compiled import compiled

SIZE = 4
SHAPES = {
    "alone": [KVShape(3, 2, 8, SIZE, "float32")],
    "packed, with a gap": [KVShape(3, 1, 8, SIZE, "float32"), KVShape(5, 2, 8, SIZE, "float32")],
    "one to a page, with a gap": [KVShape(15, 2, 8, SIZE, "float32"), KVShape(14, 2, 10, SIZE, "float32")],
    "other rows": [KVShape(2, 2, 12, SIZE, "bfloat16"), KVShape(5, 3, 20, SIZE, "float32")],
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_what_is_written_is_read_and_lies_where_transfers_look_for_it(shapes):
    shape, dice = shapes[0], random.Random(0)
    memory = PagedMemory(PageLayout.of(shapes, 5))
    blocks = KVMemory(memory, shape)
    pool = KVPool(shape, torch.frombuffer(memory.pages.reshape(-1).data, dtype=torch.uint8), memory.layout.page_bytes)
    tables = [dice.sample(range(len(blocks)), 2) for _ in range(2)]
    tables[1] = [block for block in range(len(blocks)) if block not in tables[0]][:2]
    dtype, heads, dim = getattr(torch, shape.dtype), shape.num_kv_heads, shape.head_dim
    content = torch.randn(shape.num_layers, 2, 2 * SIZE, 2, heads, dim).to(dtype)  # layer, request, token, K or V
    places = [(block, offset) for table in tables for block in table for offset in range(SIZE)]
    index = pool.write_index(*torch.tensor(places).T)
    workspace = torch.empty(content[0].numel(), dtype=dtype)
    for layer in range(shape.num_layers):
        pool.write(layer, index, content[layer].reshape(-1, 2 * heads, dim))
    for layer in range(shape.num_layers):
        keys, values = pool.read(layer, pool.read_index(tables), 2, workspace)
        assert torch.equal(keys, content[layer, :, :, 0].transpose(1, 2))
        assert torch.equal(values, content[layer, :, :, 1].transpose(1, 2))
    for request, table in enumerate(tables):
        for number, block in enumerate(table):
            lies = torch.frombuffer(bytearray(blocks[block].tobytes()), dtype=dtype)
            tokens = content[:, request, number * SIZE : (number + 1) * SIZE]
            assert torch.equal(lies.view(shape.num_layers, 2, heads, SIZE, dim), tokens.permute(0, 2, 3, 1, 4))
    memory.close()


@compiled
@pytest.mark.parametrize("others", [[], [KVShape(5, 2, 32, SIZE, "float32")]], ids=["alone", "with others"])
def test_what_is_written_in_bytes_is_read_in_floats_and_takes_a_scale_a_head(others):
    shape = KVShape(3, 2, 32, SIZE, "int8")
    memory = PagedMemory(PageLayout.of([shape, *others], 4))
    assert KVMemory(memory, shape).layout.block_bytes == 3 * 2 * 2 * SIZE * (32 + 4)
    pool = KVPool(shape, torch.frombuffer(memory.pages.reshape(-1).data, dtype=torch.uint8), memory.layout.page_bytes)
    blocks, offsets = torch.tensor([2] * SIZE), torch.arange(SIZE)
    index, content = pool.write_index(blocks, offsets), torch.randn(3, SIZE, 4, 32)
    for layer in range(3):
        pool.write(layer, index, content[layer])
    for layer in range(3):
        keys, values = pool.read(layer, pool.read_index([[2]]), 1, torch.empty(content[0].numel()))
        both = torch.cat([keys[0], values[0]]).transpose(0, 1)
        sizes = content[layer].abs().amax(dim=-1, keepdim=True)
        assert ((both - content[layer]).abs() <= sizes / 253).all()
    memory.close()


def test_these_shapes_are_what_they_are_named():
    slots = {}
    for name, shapes in SHAPES.items():
        blocks = KVMemory(memory := PagedMemory(PageLayout.of(shapes, 1)), shapes[0])
        slots[name] = blocks.layout.slots, memory.layout.page_bytes > blocks.layout.slots * blocks.layout.block_bytes
        memory.close()
    assert slots["alone"] == (1, False)
    assert slots["packed, with a gap"][0] > 1
    assert slots["packed, with a gap"][1]
    assert slots["one to a page, with a gap"] == (1, True)
