"""Moves block bytes between two engines. The transfer machines say which blocks; a transport says how.

``shm``: the receiver copies out of the sender's pool; only ids and generations are sent. ``tcp``: the block bytes are
the payload frames of the message, views of the sender's pool that are not copied on their way to the network. ``nixl``:
`kvtransfer.nixl.transport`. Memory on GPUs has transports of its own (`kvtransfer.gpu.device_transports`).
"""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Protocol

import numpy as np

from kvtransfer.copy_checks import checksum_fault, checksums, copy_unchanged, frames_of, imported
from kvtransfer.gpu.device_memory import DeviceKVMemory
from kvtransfer.gpu.device_transports import device_transports
from kvtransfer.memory import KVMemory, MemoryUnreachableError
from kvtransfer.nixl.transport import HostPlaces, NixlTransport
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import Buffer, ExportBlocks, Exported, ImportBlocks, Imported
from mesh.transports import NIXL, SHM, TCP


class Transport(Protocol):
    """Both calls are short blocking work (memory copies, checksums) and safe in a worker thread. Neither raises."""

    name: str

    def export_blocks(self, job: ExportBlocks) -> Exported:
        """Prepare blocks for sending. They stay as they are until the transfer releases them."""
        ...

    def import_blocks(self, job: ImportBlocks) -> Imported:
        """Copy to ``job.destinations``. Not ok: truncated, corrupt, reused meanwhile, or out of reach."""
        ...


class SharedMemoryTransport:
    """Moves blocks between processes of one host."""

    name = SHM

    def __init__(self, memory: KVMemory, peers: PeerMemories, checksum: bool) -> None:
        self._memory = memory
        self._peers = peers
        self._checksum = checksum

    def export_blocks(self, job: ExportBlocks) -> Exported:
        generations = self._memory.generations(job.blocks)
        sums = checksums(_contents(self._memory, job.blocks)) if self._checksum else []
        return Exported(job.seq, generations, sums, ())

    def import_blocks(self, job: ImportBlocks) -> Imported:
        started = perf_counter()
        try:
            fault = self._copy(job)
        except MemoryUnreachableError as error:
            fault = str(error)
        return imported(job, fault, started)

    def _copy(self, job: ImportBlocks) -> str | None:
        if job.source is None:
            return "the sender named no memory"
        pool = self._peers.open_host(job.peer, job.source).blocks(self._memory.layout.shape)

        def copy() -> None:
            for source, destination in zip(job.message.source_blocks, job.destinations, strict=True):
                self._memory[destination] = pool[source]

        fault = copy_unchanged(job, pool, copy)
        return fault or checksum_fault(job, lambda: _contents(self._memory, job.destinations))


class TcpTransport:
    """Moves blocks between any two engines through their ZeroMQ sockets."""

    name = TCP

    def __init__(self, memory: KVMemory, checksum: bool) -> None:
        self._memory = memory
        self._checksum = checksum

    def export_blocks(self, job: ExportBlocks) -> Exported:
        payload = _contents(self._memory, job.blocks)
        sums = checksums(payload) if self._checksum else []
        return Exported(job.seq, self._memory.generations(job.blocks), sums, payload)

    def import_blocks(self, job: ImportBlocks) -> Imported:
        started = perf_counter()
        return imported(job, self._copy(job), started)

    def _copy(self, job: ImportBlocks) -> str | None:
        frames = frames_of(job, job.payload, self._memory.layout.block_bytes)
        if isinstance(frames, str):
            return frames
        for frame, destination in zip(frames, job.destinations, strict=True):
            self._memory[destination] = np.frombuffer(frame, np.uint8)
        return checksum_fault(job, lambda: _contents(self._memory, job.destinations))


def transports_of(
    memory: KVMemory | DeviceKVMemory, peers: PeerMemories, has_checksums: Callable[[str], bool]
) -> Mapping[str, Transport]:
    """All transports of one service, by name. ``has_checksums`` tells of each whether blocks carry them."""
    transports: Sequence[Transport]
    if isinstance(memory, DeviceKVMemory):
        transports = device_transports(memory, peers, has_checksums)
    else:
        shm = SharedMemoryTransport(memory, peers, has_checksums(SHM))
        transports = shm, TcpTransport(memory, has_checksums(TCP))
        if peers.nixl is not None:
            transports += (NixlTransport(memory, HostPlaces(memory), peers.nixl, has_checksums(NIXL)),)
    return {transport.name: transport for transport in transports}


def _contents(memory: KVMemory, blocks: Sequence[int]) -> list[Buffer]:
    return [memory[block].data for block in blocks]
