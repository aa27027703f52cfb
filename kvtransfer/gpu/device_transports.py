"""Transports of KV memory that lies on a GPU.

``cuda-ipc``: between GPUs of one host; the receiver's GPU reads the sender's memory, one kernel for all blocks of a
message. ``shm`` and ``tcp`` pass through pinned host memory, so that engines on GPUs and on processors exchange
blocks; a GPU receives by ``shm``, what it sends to a processor goes by ``tcp``. ``nccl``:
`kvtransfer.gpu.nccl_transport`; ``nixl``: `kvtransfer.nixl.transport`.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from time import perf_counter
from typing import Protocol

import numpy as np

from kvtransfer.copy_checks import checksum_fault, checksums, copy_unchanged, frames_of, imported
from kvtransfer.gpu.device import Bytes, DeviceError
from kvtransfer.gpu.device_memory import DeviceKVMemory
from kvtransfer.gpu.nccl_transport import NcclTransport
from kvtransfer.memory import MemoryUnreachableError
from kvtransfer.nixl.transport import DevicePlaces, NixlTransport
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import Buffer, ExportBlocks, Exported, ImportBlocks, Imported
from mesh.transports import CUDA_IPC, NCCL, NIXL, SHM, TCP


class Staging:
    """Pinned host memory for blocks on their way to or from the device, kept and made larger when it must be."""

    def __init__(self, memory: DeviceKVMemory) -> None:
        self._memory = memory
        self._stream = memory.device.stream()
        self._pinned: Bytes = np.empty(0, np.uint8)
        self._lock = Lock()

    def read(self, blocks: Sequence[int]) -> Bytes:
        """The content of blocks [n, block_bytes], a copy that is the caller's."""
        with self._lock:
            rows = self._rows(len(blocks))
            self._memory.read(blocks, rows, self._stream)
            return rows.copy()

    def write(self, contents: Sequence[Buffer | Bytes], blocks: Sequence[int]) -> None:
        with self._lock:
            rows = self._rows(len(blocks))
            for row, content in zip(rows, contents, strict=True):
                row[:] = np.frombuffer(content, np.uint8)
            self._memory.write(rows, blocks, self._stream)

    def _rows(self, count: int) -> Bytes:
        size = self._memory.layout.block_bytes
        if len(self._pinned) < count * size:
            self._pinned = self._memory.device.pinned(count * size)
        return self._pinned[: count * size].reshape(count, size)


class DeviceTransport(Protocol):
    name: str

    def export_blocks(self, job: ExportBlocks) -> Exported: ...

    def import_blocks(self, job: ImportBlocks) -> Imported: ...


class _Common:
    """What these transports share. ``checksum``: of what leaves here; what arrives is checked if it brings one."""

    def __init__(self, memory: DeviceKVMemory, staging: Staging, checksum: bool) -> None:
        self._memory = memory
        self._staging = staging
        self._checksum = checksum

    def _named(self, job: ExportBlocks) -> Exported:
        """Blocks that the receiver fetches itself."""
        try:
            sums = checksums(self._staging.read(job.blocks)) if self._checksum else []
        except DeviceError:
            sums = [-1] * len(job.blocks)  # none has that sum: the receiver will not take them
        return Exported(job.seq, self._memory.generations(job.blocks), sums, ())

    def _checked(self, job: ImportBlocks, copy: Callable[[], str | None]) -> Imported:
        started = perf_counter()
        try:
            fault = copy() or checksum_fault(job, lambda: list(self._staging.read(job.destinations)))
        except (MemoryUnreachableError, DeviceError) as error:
            fault = str(error)
        return imported(job, fault, started)


class CudaIpcTransport(_Common):
    """Moves blocks between GPUs of one host."""

    name = CUDA_IPC

    def __init__(self, memory: DeviceKVMemory, peers: PeerMemories, staging: Staging, checksum: bool) -> None:
        super().__init__(memory, staging, checksum)
        self._peers = peers
        self._stream = memory.device.stream()

    def export_blocks(self, job: ExportBlocks) -> Exported:
        return self._named(job)

    def import_blocks(self, job: ImportBlocks) -> Imported:
        return self._checked(job, lambda: self._copy(job))

    def _copy(self, job: ImportBlocks) -> str | None:
        if job.source is None:
            return "the sender named no memory"
        memory, layout = self._memory, self._memory.layout
        pool = self._peers.open_device(job.peer, job.source).blocks(layout.shape)

        def copy() -> None:
            source_at, target_at = pool.offsets(job.message.source_blocks), memory.offsets(job.destinations)
            memory.device.copy_pieces(
                pool.region, source_at, memory.region, target_at, layout.block_bytes, self._stream
            )
            self._stream.synchronize()  # before the generations are looked at again, and before anyone uses the blocks

        return copy_unchanged(job, pool, copy)


class StagedShmTransport(_Common):
    """Moves blocks to the GPU from host memory that can be mapped here."""

    name = SHM

    def __init__(self, memory: DeviceKVMemory, peers: PeerMemories, staging: Staging, checksum: bool) -> None:
        super().__init__(memory, staging, checksum)
        self._peers = peers

    def export_blocks(self, job: ExportBlocks) -> Exported:
        """No receiver that can see this memory's `MemoryRef` asks for it; one that does will not find the blocks."""
        return self._named(job)

    def import_blocks(self, job: ImportBlocks) -> Imported:
        return self._checked(job, lambda: self._copy(job))

    def _copy(self, job: ImportBlocks) -> str | None:
        if job.source is None:
            return "the sender named no memory"
        pool = self._peers.open_host(job.peer, job.source).blocks(self._memory.layout.shape)

        def copy() -> None:
            self._staging.write([pool[block] for block in job.message.source_blocks], job.destinations)

        return copy_unchanged(job, pool, copy)


class StagedTcpTransport(_Common):
    """Moves blocks through ZeroMQ. It sends a copy: the blocks themselves are not read after the export."""

    name = TCP

    def export_blocks(self, job: ExportBlocks) -> Exported:
        generations = self._memory.generations(job.blocks)
        try:
            rows = list(self._staging.read(job.blocks))
        except DeviceError:
            return Exported(job.seq, generations, [], ())
        return Exported(job.seq, generations, checksums(rows) if self._checksum else [], [row.data for row in rows])

    def import_blocks(self, job: ImportBlocks) -> Imported:
        return self._checked(job, lambda: self.take(job, job.payload))

    def sums(self, blocks: Sequence[int]) -> list[int]:
        """Checksums of blocks, if they are wanted."""
        return checksums(self.contents(blocks)) if self._checksum else []

    def contents(self, blocks: Sequence[int]) -> Sequence[Buffer]:
        return [row.data for row in self._staging.read(blocks)]

    def take(self, job: ImportBlocks, payload: Sequence[Buffer]) -> str | None:
        """Copy payload frames to the device; say what is wrong with them."""
        frames = frames_of(job, payload, self._memory.layout.block_bytes)
        if isinstance(frames, str):
            return frames
        self._staging.write(frames, job.destinations)
        return None


def device_transports(
    memory: DeviceKVMemory, peers: PeerMemories, has_checksums: Callable[[str], bool]
) -> Sequence[DeviceTransport]:
    """All transports of one service on a GPU."""
    staging = Staging(memory)
    transports: list[DeviceTransport] = [
        CudaIpcTransport(memory, peers, staging, has_checksums(CUDA_IPC)),
        StagedShmTransport(memory, peers, staging, has_checksums(SHM)),
        StagedTcpTransport(memory, staging, has_checksums(TCP)),
    ]
    if peers.links is not None:
        while_there_is_no_channel = StagedTcpTransport(memory, staging, has_checksums(NCCL))
        transports.append(NcclTransport(memory, peers.links, while_there_is_no_channel))
    if peers.nixl is not None:
        places = DevicePlaces(memory, staging.read)
        transports.append(NixlTransport(memory, places, peers.nixl, has_checksums(NIXL)))
    return transports
