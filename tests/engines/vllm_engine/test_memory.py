"""A layer's tensor over pages: vLLM writes a block there, peers read it, and no other block or layer changes."""

import pytest
import torch
from msgspec.structs import replace

from engines.vllm_engine.memory import BlockStarts, HostPages, block_form, layer_view, split_form
from kvtransfer.layout import KVLayout, PageLayout
from kvtransfer.memory import Geometry, KVMemory, PagedMemory
from mesh.wire.transfers import KVShape

LAYERS, HEADS, DIM, SIZE, BLOCKS = 3, 2, 5, 4, 6
SHAPE = KVShape(LAYERS, HEADS, DIM, SIZE, "float32")


@pytest.fixture
def memory():
    memory = PagedMemory(PageLayout.of([SHAPE], BLOCKS))
    yield memory
    memory.close()


def places_of(memory, shape=SHAPE):
    layout = KVLayout(shape, memory.layout)
    return BlockStarts(memory.layout.page_bytes, layout.block_bytes, layout.slots)


def pages_of(memory):
    layout, places = memory.layout, places_of(memory)
    return HostPages(memory.ref("").path, Geometry(layout).pages_offset, layout.num_pages, places).tensor()


@pytest.mark.parametrize("like", [(7, HEADS, SIZE, 2 * DIM), (2, 7, HEADS, SIZE, DIM), (7, 2, SIZE, HEADS, DIM)])
def test_what_is_written_into_a_layer_is_in_the_block_and_nowhere_else(memory, like):
    blocks, pages = KVMemory(memory, SHAPE), pages_of(memory)
    views = [layer_view(pages, places_of(memory), layer, torch.empty(like), 7) for layer in range(LAYERS)]
    axis = like.index(7)
    for layer, view in enumerate(views):
        for block in range(BLOCKS):
            view.select(axis, block).fill_(10.0 * layer + block + 1)
    for block in range(BLOCKS):
        content = blocks[block].view("float32").reshape(LAYERS, -1)
        assert [set(row.tolist()) for row in content] == [{10.0 * layer + block + 1} for layer in range(LAYERS)]


@pytest.mark.parametrize(("order", "form"), [((0, 1, 2, 3), "123"), ((0, 2, 1, 3), "213"), ((0, 2, 3, 1), "231")])
def test_the_axes_of_a_block_lie_as_attention_wants_them(memory, order, form):
    """vLLM names the axes of its caches in one order, and has them in memory in the order of its attention."""
    shape = (7, HEADS, SIZE, 2 * DIM)
    like = torch.empty([shape[axis] for axis in order]).permute([order.index(axis) for axis in range(4)])
    view = layer_view(pages_of(memory), places_of(memory), 1, like, 7)
    assert block_form(like, 7) == form
    assert view.shape == (BLOCKS, *shape[1:])
    assert view.stride()[1:] == like.stride()[1:]
    view[4] = torch.arange(like[0].numel(), dtype=torch.float32).view(shape[1:])
    content = KVMemory(memory, SHAPE)[4].view("float32").reshape(LAYERS, -1)
    in_memory = torch.from_numpy(content[1].copy()).view([shape[axis] for axis in order][1:])
    assert torch.equal(in_memory, view[4].permute([axis - 1 for axis in order[1:]]))
    assert not content[[0, 2]].any()


def test_a_block_that_arrives_is_in_the_tensors(memory):
    blocks, pages = KVMemory(memory, SHAPE), pages_of(memory)
    view = layer_view(pages, places_of(memory), 1, torch.empty(7, HEADS, SIZE, 2 * DIM), 7)
    view[2] = torch.arange(view[2].numel(), dtype=torch.float32).view(view[2].shape)
    blocks[5] = blocks[2]
    assert torch.equal(view[5], view[2])
    assert not view[4].any()
    # What vLLM's kernels for CPUs make of it: K and V of a head, one after the other.
    assert view.view(BLOCKS, HEADS, 2 * SIZE, DIM).data_ptr() == view.data_ptr()


def test_workers_of_a_layer_have_their_heads_side_by_side(memory):
    pages, places = pages_of(memory), places_of(memory)
    whole = layer_view(pages, places, 1, torch.empty(7, HEADS, SIZE, 2 * DIM), 7)
    halves = [layer_view(pages, places, 2 + rank, torch.empty(7, 1, SIZE, 2 * DIM), 7) for rank in range(2)]
    for rank, half in enumerate(halves):
        half[3] = rank + 1.0
    assert whole[3, 0].eq(1.0).all()
    assert whole[3, 1].eq(2.0).all()


def test_blocks_name_their_workers_where_others_could_not_read_them():
    assert [split_form("LBHNC", number) for number in (1, 2)] == ["", ""]
    assert [split_form("LBNHC", number) for number in (1, 2)] == ["", "split2"]
    assert split_form("", 2) == "split2", "nobody knows"


@pytest.mark.parametrize(("layer", "like"), [(LAYERS, (7, HEADS, SIZE, 2 * DIM)), (0, (HEADS, SIZE, 7, DIM))])
def test_what_is_no_layer_of_the_pages_is_refused(memory, layer, like):
    with pytest.raises(ValueError, match=r"is not in blocks|counts 7 blocks"):
        layer_view(pages_of(memory), places_of(memory), layer, torch.empty(like), 7)


@pytest.mark.parametrize(
    "other", [replace(SHAPE, num_layers=5), replace(SHAPE, num_layers=7), replace(SHAPE, dtype="bfloat16")]
)
def test_services_that_share_pages_do_not_touch_each_other(other):
    """Also where the blocks of one do not fill a page, and several of the other's lie in one."""
    memory = PagedMemory(PageLayout.of([SHAPE, other], BLOCKS))
    pages, written = pages_of(memory), dict[str, list[float]]()
    shapes = {"one": SHAPE, "other": other}
    for name, shape in shapes.items():
        blocks, places = KVMemory(memory, shape), places_of(memory, shape)
        like = torch.empty(7, HEADS, SIZE, 2 * DIM, dtype=getattr(torch, shape.dtype))
        views = [layer_view(pages, places, layer, like, 7) for layer in range(shape.num_layers)]
        own = [
            block for block in range(len(blocks)) if (block // places.slots) % 2 == (name == "one")
        ]  # pages by turns
        for block in own:
            for view in views:
                view[places.of(block)] = block + 1.0
        written[name] = own
    for name, shape in shapes.items():
        blocks = KVMemory(memory, shape)
        for block in written[name]:
            content = torch.frombuffer(bytearray(blocks[block].tobytes()), dtype=getattr(torch, shape.dtype))
            assert content.eq(block + 1.0).all()
    memory.close()
