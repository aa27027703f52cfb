"""KV memory on a GPU. Pages lie on the device, in one allocation of their own; header and counters in host memory.

One allocation, because a CUDA IPC handle means the whole of it: from the pool of an allocator, a peer would map its
neighbours and not know where the pages begin. Its first bytes repeat the header's token, so that a peer that opened a
handle reads whether it means the same memory.

Order. The sequence lock of `kvtransfer.memory` holds for the GPU if

1. a step's result is told only when its stream is synchronised: what the core calls computed is on the device;
2. the owner raises a generation before the kernels that write new content are queued (an x86 store, and the driver's
   doorbell after it): who reads any new byte finds the raised generation afterwards;
3. a reader synchronises the stream of its copy before it looks at the generations again, and before it says that a copy
   is done.
"""

import weakref
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from kvtransfer.gpu.device import Bytes, Device, DeviceError, Offsets, Region, Stream
from kvtransfer.layout import KVLayout, PageLayout
from kvtransfer.memory import (
    MAGIC_DEVICE,
    BlockCounters,
    CountedPages,
    Counters,
    MemoryUnreachableError,
    OwnedBlocks,
    map_counted,
)
from mesh.wire.transfers import DeviceRef, KVShape, MemoryRef

PAGES_AT = 512  # bytes: the pages begin here, the token at 0


class DeviceMemory(CountedPages):
    """KV memory on ``device``, zeroed, that peers can open. Owned by one process until `close`."""

    def __init__(self, layout: PageLayout, device: Device) -> None:
        super().__init__(layout, MAGIC_DEVICE, has_pages=False)
        self.device = device
        self.stream = device.stream()
        self.region = device.allocate(PAGES_AT + layout.num_pages * layout.page_bytes)
        device.to_device(np.frombuffer(self._token, np.uint8), self.region, 0, self.stream)
        self.stream.synchronize()
        self._handle = device.handle(self.region)

    def zero_page(self, page: int) -> None:
        size = self.layout.page_bytes
        self.device.zero(self.region, PAGES_AT + page * size, size, self.stream)
        self.stream.synchronize()

    def ref(self, host: str) -> MemoryRef:
        shared = super().ref(host)
        device = DeviceRef(self.device.uuid, self._handle, self.device.has_nccl, self.device.allows_two_ranks)
        return replace(shared, device=device)


class DeviceBlocks(BlockCounters):
    """The blocks of one service in a device's pages, here or of a peer."""

    def __init__(self, layout: KVLayout, region: Region, generations: Counters) -> None:
        super().__init__(layout, generations)
        self.region = region

    def offsets(self, blocks: Sequence[int]) -> Offsets:
        """Return where blocks begin, in bytes from the start of the region [n]."""
        pages, slots = np.divmod(np.asarray(blocks, np.int64), self._slots)
        offsets: Offsets = PAGES_AT + pages * self.layout.pages.page_bytes + slots * self.layout.block_bytes
        return offsets


class DeviceKVMemory(DeviceBlocks, OwnedBlocks):
    """One service's blocks in the GPU memory of its engine. Raise ValueError if the pages were not made for them."""

    def __init__(self, memory: DeviceMemory, shape: KVShape) -> None:
        super().__init__(KVLayout(shape, memory.layout), memory.region, memory.generations)
        self._memory = memory
        self.device = memory.device

    def read(self, blocks: Sequence[int], host: Bytes, stream: Stream) -> None:
        """Copy blocks to ``host`` [n, block_bytes], and wait for it."""
        for offset, row in zip(self.offsets(blocks).tolist(), host, strict=True):
            self.device.to_host(self.region, offset, row, stream)
        stream.synchronize()

    def write(self, host: Bytes, blocks: Sequence[int], stream: Stream) -> None:
        """Copy ``host`` [n, block_bytes] to blocks, and wait for it."""
        for row, offset in zip(host, self.offsets(blocks).tolist(), strict=True):
            self.device.to_device(row, self.region, offset, stream)
        stream.synchronize()


class PeerDeviceMemory:
    """A peer's memory on a GPU of this host. Closed when the last reference to it and its blocks is gone."""

    def __init__(self, ref: MemoryRef, there: DeviceRef, device: Device) -> None:
        """Raise `MemoryUnreachableError` unless ``device`` can read the memory that ``ref`` means."""
        geometry, buffer = map_counted(ref, MAGIC_DEVICE)
        self.layout = layout = geometry.layout
        self.generations: Counters = geometry.generations(buffer)
        try:
            self._region = device.open(there.handle, PAGES_AT + layout.num_pages * layout.page_bytes)
            self._close = weakref.finalize(self, device.close, self._region)
            token = np.empty(len(bytes.fromhex(ref.token)), np.uint8)
            stream = device.stream()
            device.to_host(self._region, 0, token, stream)
            stream.synchronize()
        except DeviceError as error:
            raise MemoryUnreachableError(f"cannot open the peer's GPU memory: {error}") from error
        if token.tobytes().hex() != ref.token:
            raise MemoryUnreachableError("the peer's handle is that of other GPU memory than it means")

    def blocks(self, shape: KVShape) -> "PeerDeviceBlocks":
        """Return the blocks of a service. Raise `MemoryUnreachableError` if the pages were not made for them."""
        try:
            return PeerDeviceBlocks(self, KVLayout(shape, self.layout), self._region, self.generations)
        except ValueError as error:
            raise MemoryUnreachableError(str(error)) from None


class PeerDeviceBlocks(DeviceBlocks):
    """Keeps the peer's memory open while it is used."""

    def __init__(self, memory: PeerDeviceMemory, layout: KVLayout, region: Region, generations: Counters) -> None:
        super().__init__(layout, region, generations)
        self._memory = memory
