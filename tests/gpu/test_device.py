"""The edge to CUDA: what `tests/kvtransfer/fake_device.py` promises, on a GPU."""

import multiprocessing
import os
import time

import numpy as np
import pytest

from kvtransfer.gpu.device import DeviceError
from kvtransfer.gpu.device_memory import PAGES_AT

MIB = 2**20


def content(num_bytes, seed=0):
    return np.random.default_rng(seed).integers(0, 256, num_bytes, np.uint8)


def read(device, region, offset=0, num_bytes=None):
    host, stream = device.pinned(num_bytes or region.num_bytes - offset), device.stream()
    device.to_host(region, offset, host, stream)
    stream.synchronize()
    return host


def test_memory_is_zeroed_and_holds_what_is_written(device):
    region, stream = device.allocate(MIB), device.stream()
    assert not read(device, region).any()
    device.to_device(content(4096), region, 512, stream)
    stream.synchronize()
    np.testing.assert_array_equal(read(device, region, 512, 4096), content(4096))
    device.zero(region, 512, 2048, stream)
    stream.synchronize()
    assert not read(device, region, 512, 2048).any()
    np.testing.assert_array_equal(read(device, region, 512 + 2048, 2048), content(4096)[2048:])


@pytest.mark.parametrize(("count", "piece_bytes"), [(1, 16), (7, 512), (100, 36864), (5, 8 * MIB)])
def test_pieces_arrive_and_nothing_else_is_touched(device, count, piece_bytes):
    size, dice, stream = (count + 3) * piece_bytes, np.random.default_rng(1), device.stream()
    source, target = device.allocate(size), device.allocate(size)
    device.to_device(content(size), source, 0, stream)
    froms, tos = (dice.permutation(count + 3)[:count].astype(np.int64) * piece_bytes for _ in range(2))
    device.copy_pieces(source, froms, target, tos, piece_bytes, stream)
    stream.synchronize()
    expected = np.zeros(size, np.uint8)
    for first, last in zip(froms, tos, strict=True):
        expected[last : last + piece_bytes] = content(size)[first : first + piece_bytes]
    np.testing.assert_array_equal(read(device, target), expected)


def test_pieces_of_odd_sizes_are_refused(device):
    region = device.allocate(1024)
    with pytest.raises(DeviceError, match="no multiple of 16"):
        device.copy_pieces(region, np.zeros(1, np.int64), region, np.full(1, 512), 24, device.stream())


def test_events_are_done_when_the_work_before_them_is(device):
    stream, region = device.stream(), device.allocate(64 * MIB)
    device.zero(region, 0, 64 * MIB, stream)
    event = stream.record()
    stream.synchronize()
    assert event.is_done()


def test_a_handle_that_means_nothing_is_an_error(device):
    with pytest.raises(DeviceError):
        device.open(b"\1" * 64, MIB)


def test_torch_sees_the_same_bytes(device):
    import torch

    from engines.torch_engine.gpu_memory import pages_tensor
    from kvtransfer.gpu.device_memory import DeviceMemory
    from kvtransfer.layout import PageLayout

    memory = DeviceMemory(PageLayout(4, MIB, 1), device)
    tensor = pages_tensor(memory)
    assert tensor.numel() == 4 * MIB
    assert not tensor.any()
    tensor[5] = 7
    torch.cuda.synchronize()
    assert read(device, memory.region, PAGES_AT + 5, 1)[0] == 7


def own(pipe):
    from engines.torch_engine.gpu_memory import open_gpu

    device = open_gpu("cuda:0")
    region, stream = device.allocate(MIB), device.stream()
    device.to_device(content(MIB, 5), region, 0, stream)
    stream.synchronize()
    pipe.send(device.handle(region))
    pipe.recv()


def test_another_processs_memory_can_be_read(device):
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    child = context.Process(target=own, args=(theirs,), daemon=True)
    child.start()
    try:
        handle = pipe.recv()
        region, again = device.open(handle, MIB), device.open(handle, MIB)
        np.testing.assert_array_equal(read(device, region), content(MIB, 5))
        device.close(again)
        np.testing.assert_array_equal(read(device, region), content(MIB, 5))
        device.close(region)
    finally:
        pipe.send(None)
        child.join(20)


def rank_zero(pipe, unique_id, is_silent):
    from engines.torch_engine.gpu_memory import open_gpu

    device = open_gpu("cuda:0")
    communicator = device.communicator(unique_id, 0)
    communicator.connect()
    region, stream = device.allocate(MIB), device.stream()
    device.to_device(content(MIB, 9), region, 0, stream)
    stream.synchronize()
    pipe.send("connected")
    if not is_silent:
        communicator.send(region, MIB, stream)
    pipe.recv()


@pytest.fixture
def two_ranks(monkeypatch):
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    from engines.torch_engine.gpu_memory import open_gpu

    device = open_gpu("cuda:0")
    if not device.allows_two_ranks:
        pytest.skip("this NCCL takes no two ranks on one GPU")
    return device


@pytest.mark.parametrize("is_silent", [False, True])
def test_nccl_delivers_and_an_abort_ends_waiting(two_ranks, is_silent):
    device, context = two_ranks, multiprocessing.get_context("spawn")
    assert os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] == "1"
    unique_id = device.unique_id()
    pipe, theirs = context.Pipe()
    child = context.Process(target=rank_zero, args=(theirs, unique_id, is_silent), daemon=True)
    child.start()
    try:
        communicator = device.communicator(unique_id, 1)
        communicator.connect()
        assert pipe.recv() == "connected"
        region, stream = device.allocate(MIB), device.stream()
        communicator.receive(region, MIB, stream)
        event = stream.record()
        ends_at = time.monotonic() + (2.0 if is_silent else 20.0)
        while not event.is_done() and time.monotonic() < ends_at:
            time.sleep(0.01)
        assert event.is_done() != is_silent
        if is_silent:
            communicator.abort()
            stream.synchronize()
        else:
            np.testing.assert_array_equal(read(device, region), content(MIB, 9))
    finally:
        pipe.send(None)
        child.join(20)
        child.kill()
