"""Transport ``nccl``: blocks are gathered into a buffer, sent from GPU to GPU, and scattered at the other end."""

from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

import msgspec
import numpy as np

from kvtransfer.copy_checks import checksum_fault, imported
from kvtransfer.gpu.device import DeviceError, Offsets, Region
from kvtransfer.gpu.device_memory import DeviceKVMemory
from kvtransfer.gpu.nccl import NcclLinks
from kvtransfer.gpu.tickets import Announcement
from kvtransfer.protocol import Buffer, ExportBlocks, Exported, ImportBlocks, Imported
from mesh.transports import NCCL


class Staged(Protocol):
    """How bytes travel while there is no channel (`kvtransfer.gpu.device_transports.StagedTcpTransport`)."""

    def sums(self, blocks: Sequence[int]) -> list[int]: ...

    def contents(self, blocks: Sequence[int]) -> Sequence[Buffer]: ...

    def export_blocks(self, job: ExportBlocks) -> Exported: ...

    def take(self, job: ImportBlocks, payload: Sequence[Buffer]) -> str | None: ...


class NcclTransport:
    """Moves blocks between GPUs of any hosts. It sends a copy: blocks are not read after the export."""

    name = NCCL

    def __init__(self, memory: DeviceKVMemory, links: NcclLinks, staged: Staged) -> None:
        self._memory = memory
        self._links = links
        self._staged = staged
        self._stream = memory.device.stream()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Announcement)

    def export_blocks(self, job: ExportBlocks) -> Exported:
        generations, size = self._memory.generations(job.blocks), self._memory.layout.block_bytes
        try:
            announcement = self._links.send(
                job.peer, len(job.blocks) * size, lambda slot: self._gather(job.blocks, slot)
            )
            if announcement is not None and announcement.ticket is not None:
                sums = self._staged.sums(job.blocks)
                return Exported(job.seq, generations, sums, [self._encoder.encode(announcement)])
        except DeviceError:
            return Exported(job.seq, generations, [], ())
        staged = self._staged.export_blocks(job)
        head = b"" if announcement is None else self._encoder.encode(announcement)
        return Exported(job.seq, generations, staged.checksums, [head, *staged.payload])

    def import_blocks(self, job: ImportBlocks) -> Imported:
        started = perf_counter()
        try:
            fault = self._take(job) or checksum_fault(job, lambda: self._staged.contents(job.destinations))
        except DeviceError as error:
            fault = str(error)
        return imported(job, fault, started)

    def _take(self, job: ImportBlocks) -> str | None:
        if not job.payload:
            return "the sender could not read the blocks"
        head, *frames = job.payload
        if not len(memoryview(head)):
            return self._staged.take(job, frames)
        try:
            announcement = self._decoder.decode(head)
        except Exception:  # the decoder's own, but also UnicodeDecodeError and RecursionError
            return "the first payload frame is no announcement"
        if announcement.ticket is None:
            self._links.expect(job.peer, announcement)
            return self._staged.take(job, frames)
        num_bytes = len(job.destinations) * self._memory.layout.block_bytes
        return self._links.receive(
            job.peer, announcement, num_bytes, lambda slot: self._scatter(slot, job.destinations)
        )

    def _gather(self, blocks: Sequence[int], slot: Region) -> None:
        memory = self._memory
        size = memory.layout.block_bytes
        memory.device.copy_pieces(
            memory.region, memory.offsets(blocks), slot, _packed(len(blocks), size), size, self._stream
        )
        self._stream.synchronize()  # from here on the blocks may change

    def _scatter(self, slot: Region, blocks: Sequence[int]) -> None:
        memory = self._memory
        size = memory.layout.block_bytes
        memory.device.copy_pieces(
            slot, _packed(len(blocks), size), memory.region, memory.offsets(blocks), size, self._stream
        )
        self._stream.synchronize()  # before anyone uses the blocks, and the slot


def _packed(count: int, size: int) -> Offsets:
    """One piece after the other."""
    offsets: Offsets = np.arange(count, dtype=np.int64) * size
    return offsets
