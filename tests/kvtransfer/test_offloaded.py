"""KV of offloaded requests: what is restored is what was kept, whatever became of the blocks meanwhile."""

import numpy as np
import pytest

from kvtransfer.gpu.device_memory import DeviceKVMemory, DeviceMemory
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from kvtransfer.offloaded import OffloadedBlocks
from tests.kvtransfer.fake_device import FakeDevice, World

PAGES = 6


@pytest.fixture(params=["host", "device"])
def memory(request, shape):
    layout = PageLayout.of([shape], PAGES)
    if request.param == "host":
        return KVMemory(PagedMemory(layout), shape)
    return DeviceKVMemory(DeviceMemory(layout, FakeDevice(World(delay_s=0.002), "gpu-0", has_nccl=False)), shape)


def fill(memory, seed):
    dice = np.random.default_rng(seed)
    rows = dice.integers(0, 256, (PAGES, memory.layout.block_bytes), np.uint8)
    write(memory, rows, range(PAGES))
    return rows


def write(memory, rows, blocks):
    if isinstance(memory, DeviceKVMemory):
        memory.write(np.ascontiguousarray(rows), list(blocks), memory.device.stream())
    else:
        for row, block in zip(rows, blocks, strict=True):
            memory[block] = row


def read(memory, blocks):
    if isinstance(memory, DeviceKVMemory):
        rows = np.empty((len(blocks), memory.layout.block_bytes), np.uint8)
        memory.read(blocks, rows, memory.device.stream())
        return rows
    return np.stack([memory[block] for block in blocks])


def test_what_is_restored_is_what_was_kept(memory):
    offloaded, rows = OffloadedBlocks(memory), fill(memory, 1)
    offloaded.keep(7, [4, 1, 3])
    fill(memory, 2)
    offloaded.restore(7, 0, [0, 5, 2])
    assert (read(memory, [0, 5, 2]) == rows[[4, 1, 3]]).all()


def test_what_is_there_already_is_left_out_and_others_are_not_touched(memory):
    offloaded, rows = OffloadedBlocks(memory), fill(memory, 1)
    offloaded.keep(7, [4, 1, 3])
    others = fill(memory, 2)
    offloaded.restore(7, 2, [0])
    assert (read(memory, [0]) == rows[[3]]).all()
    assert (read(memory, [1, 2, 3, 4, 5]) == others[1:]).all()


def test_what_is_forgotten_is_gone_and_may_be_forgotten_again(memory):
    offloaded = OffloadedBlocks(memory)
    offloaded.keep(1, [0])
    offloaded.keep(2, [1])
    offloaded.forget(1)
    offloaded.forget(1)
    assert len(offloaded) == 1
    with pytest.raises(KeyError):
        offloaded.restore(1, 0, [0])
