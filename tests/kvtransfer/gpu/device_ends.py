"""An end of a transfer with memory on a double of a GPU."""

import itertools

import numpy as np

from kvtransfer.gpu.device_memory import PAGES_AT, DeviceKVMemory, DeviceMemory
from kvtransfer.gpu.nccl import NcclLimits, NcclLinks
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import ExportBlocks, ImportBlocks
from kvtransfer.transports import transports_of
from mesh.wire.transfers import Blocks
from tests.kvtransfer.fake_device import FakeDevice

PAGES = 6


class End:
    """An engine's memory, on a GPU of ``world`` or on the host, and its transports."""

    def __init__(self, name, shapes, world=None, *, checksum=False, has_nccl=True, gpu="gpu-0", limits=None):
        layout = PageLayout.of(shapes, PAGES)
        self.name, self.peers, self.device = name, PeerMemories(), None
        if world is None:
            self.paged = PagedMemory(layout)
            self.memory = KVMemory(self.paged, shapes[0])
        else:
            self.device = FakeDevice(world, gpu, has_nccl)
            self.paged = DeviceMemory(layout, self.device)
            self.memory = DeviceKVMemory(self.paged, shapes[0])
            self.peers.equip(self.device, layout.page_bytes)
            if has_nccl:
                self.peers.links = NcclLinks(self.device, limits or NcclLimits(1 << 20, watch_s=0.01, retry_s=0.0))
        self.transports = transports_of(self.memory, self.peers, lambda _: checksum)
        self.numbers = itertools.count()

    @property
    def size(self):
        return self.memory.layout.block_bytes

    def bytes_of(self, block):
        if self.device is None:
            return self.memory[block].tobytes()
        at = int(self.memory.offsets([block])[0])
        return self.memory.region.bytes[at : at + self.size].tobytes()

    def fill(self, seed):
        dice = np.random.default_rng(seed)
        pages = self.memory.array if self.device is None else self.memory.region.bytes[PAGES_AT:]
        pages[:] = dice.integers(0, 256, pages.shape, np.uint8)

    def export(self, transport, blocks, to):
        done = self.transports[transport].export_blocks(
            ExportBlocks("t", "s", transport, next(self.numbers), blocks, to.name)
        )
        tokens = len(blocks) * self.memory.layout.shape.block_size
        message = Blocks("t", done.seq, 0, tokens, blocks, done.generations, done.checksums)
        return message, [bytes(memoryview(frame)) for frame in done.payload]

    def take(self, transport, source, exported, blocks, ref=None):
        message, payload = exported
        ref = ref or source.memory.ref("here")
        job = ImportBlocks("t", "s", transport, source.name, ref, message, payload, blocks)
        return self.transports[transport].import_blocks(job).ok
