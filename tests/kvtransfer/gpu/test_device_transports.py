"""Memory on GPUs and its transports, over a double of the device (`fake_device`)."""

import msgspec
import numpy as np
import pytest

from kvtransfer.gpu.device_memory import PAGES_AT, DeviceKVMemory
from kvtransfer.memory import MemoryUnreachableError
from kvtransfer.peer_memories import PeerMemories
from mesh.transports import CUDA_IPC, NCCL, SHM
from tests.kvtransfer.fake_device import World
from tests.kvtransfer.gpu.device_ends import End

PATHS = {
    CUDA_IPC: (True, True),
    NCCL: (True, True),
    SHM: (False, True),
    "tcp from a GPU": (True, False),
    "tcp to a GPU": (False, True),
    "tcp between GPUs": (True, True),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", range(4))
def test_blocks_arrive_where_they_belong_and_nowhere_else(world, shapes, path, seed):
    """Both ends share their pages with services that the other does not have."""
    transport, dice = path.partition(" ")[0], np.random.default_rng(seed)
    worlds = [world if on_gpu else None for on_gpu in PATHS[path]]
    source = End("source", [shapes[0], shapes[1]], worlds[0], checksum=seed % 2 == 1)
    target = End("target", [shapes[0], shapes[2]], worlds[1], gpu="gpu-1")
    source.fill(seed), target.fill(seed + 100)
    before = {block: target.bytes_of(block) for block in range(len(target.memory))}
    for _ in range(3):
        blocks = dice.choice(len(source.memory), 5, replace=False).tolist()
        destinations = dice.choice(len(target.memory), 5, replace=False).tolist()
        assert target.take(transport, source, source.export(transport, blocks, target), destinations)
        before |= dict(zip(destinations, map(source.bytes_of, blocks), strict=True))
        assert {block: target.bytes_of(block) for block in before} == before
    assert (transport != CUDA_IPC) or target.device.num_copies == 3, "one kernel a message"


@pytest.mark.parametrize("path", PATHS)
def test_a_wrong_checksum_is_noticed(shapes, path):
    world = World()
    worlds = [world if on_gpu else None for on_gpu in PATHS[path]]
    transport = path.partition(" ")[0]
    source = End("source", shapes[:1], worlds[0], checksum=True)
    target = End("target", shapes[:1], worlds[1], gpu="gpu-1")
    source.fill(1)
    message, payload = source.export(transport, [1, 2], target)
    swapped = msgspec.structs.replace(message, checksums=message.checksums[::-1])
    assert not target.take(transport, source, (swapped, payload), [0, 1])


class TestCudaIpc:
    @pytest.fixture
    def ends(self, world, shapes):
        source, target = End("source", shapes[:1], world), End("target", shapes[:1], world)
        source.fill(3)
        return source, target

    def test_a_block_that_is_reused_before_or_during_the_copy_is_noticed(self, ends):
        source, target = ends
        exported = source.export(CUDA_IPC, [1, 2], target)
        source.memory.reuse(2)
        assert not target.take(CUDA_IPC, source, exported, [0, 1])
        exported = source.export(CUDA_IPC, [1, 2], target)
        target.device.copied = lambda: source.memory.reuse(1)
        assert not target.take(CUDA_IPC, source, exported, [0, 1])
        target.device.copied = lambda: None
        assert target.take(CUDA_IPC, source, source.export(CUDA_IPC, [1, 2], target), [0, 1])

    def test_a_handle_is_opened_once_and_closed_when_the_peer_is_forgotten(self, ends):
        source, target = ends
        for _ in range(3):
            assert target.take(CUDA_IPC, source, source.export(CUDA_IPC, [1], target), [0])
        (opened,) = target.device.opened
        assert opened.is_open
        target.peers.forget("source")
        assert not opened.is_open

    def test_a_memory_that_is_forgotten_during_a_copy_is_closed_after_it(self, ends):
        source, target = ends
        open_meanwhile = []

        def forget():
            target.peers.forget("source")
            open_meanwhile.append(target.device.opened[0].is_open)

        target.device.copied = forget
        assert target.take(CUDA_IPC, source, source.export(CUDA_IPC, [1], target), [0])
        assert open_meanwhile == [True]
        assert not target.device.opened[0].is_open

    def test_a_handle_of_other_memory_is_refused(self, ends, world, shapes):
        """As after a restart under the same process id: the path is right, the handle is of the life before."""
        source, target = ends
        other = End("other", shapes[:1], world)
        right, wrong = source.memory.ref("here"), other.memory.ref("here")
        mixed = msgspec.structs.replace(right, device=wrong.device)
        exported = source.export(CUDA_IPC, [1], target)
        assert not target.take(CUDA_IPC, source, exported, [0], mixed)
        unknown = msgspec.structs.replace(right.device, handle=b"\0" * 64)
        assert not target.take(CUDA_IPC, source, exported, [0], msgspec.structs.replace(right, device=unknown))
        assert not any(region.is_open for region in target.device.opened)
        assert target.take(CUDA_IPC, source, exported, [0])

    def test_a_restart_under_the_same_path_is_another_memory(self, ends, world, shapes):
        source, target = ends
        exported = source.export(CUDA_IPC, [1], target)
        assert target.take(CUDA_IPC, source, exported, [0])
        stale = source.memory.ref("here")
        reborn = End("source", shapes[:1], world)
        fresh = msgspec.structs.replace(reborn.memory.ref("here"))
        with pytest.raises(MemoryUnreachableError, match="another memory"):
            PeerMemories_of(target).open("source", msgspec.structs.replace(stale, path=fresh.path))
        reborn.fill(9)
        assert target.take(CUDA_IPC, reborn, reborn.export(CUDA_IPC, [1], target), [0])
        assert target.bytes_of(0) == reborn.bytes_of(1)

    def test_a_dead_peers_memory_cannot_be_opened(self, ends, world):
        source, target = ends
        exported = source.export(CUDA_IPC, [1], target)
        world.die(source.device)
        assert not target.take(CUDA_IPC, source, exported, [0])

    def test_ids_that_make_no_sense_are_refused(self, ends):
        source, target = ends
        message, _ = source.export(CUDA_IPC, [1], target)
        for changes in ({"source_blocks": [999]}, {"source_blocks": [-1]}, {"generations": []}, {"generations": [-1]}):
            assert not target.take(CUDA_IPC, source, (msgspec.structs.replace(message, **changes), []), [0])

    def test_a_page_that_gets_another_dtype_is_zeros_before_it_is_used(self, world, shapes):
        end = End("end", shapes[:1], world)
        half = DeviceKVMemory(end.paged, msgspec.structs.replace(shapes[0], dtype="bfloat16", num_layers=4))
        end.fill(5)
        end.memory.take_page(2)
        assert end.memory.region.bytes[PAGES_AT:].all(axis=None) or end.memory.region.bytes[PAGES_AT:].any()
        half.take_page(2)
        size = end.paged.layout.page_bytes
        pages = end.memory.region.bytes[PAGES_AT:].reshape(-1, size)
        assert not pages[2].any()
        assert pages[1].any()
        assert pages[3].any()


def PeerMemories_of(end):
    peers = PeerMemories()
    peers.equip(end.device, end.paged.layout.page_bytes)
    return peers


def test_an_engine_without_a_gpu_says_so(shapes):
    source, target = End("source", shapes[:1], World()), End("target", shapes[:1])
    with pytest.raises(MemoryUnreachableError, match="lies on a GPU, and this engine has none"):
        target.peers.open("source", source.memory.ref("here"))
    assert not target.take(SHM, source, source.export(SHM, [1], target), [0])
