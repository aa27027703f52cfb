"""What moves block bytes between two engines. The transfer machines say which blocks; a transport says how.

``shm``: the receiver copies out of the sender's pool; only ids and generations are sent. ``tcp``: the block bytes are
the payload frames of the message, views of the sender's pool that are not copied on their way to the network.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Protocol

import numpy as np
import structlog

from kvtransfer.memory import KVBlocks, KVMemory, MemoryUnreachableError, PeerMemories
from kvtransfer.protocol import SHM, TCP, ExportBlocks, Exported, ImportBlocks, Imported
from mesh.messages import MemoryRef

log = structlog.get_logger()


class TransportError(ValueError):
    """The topology demands a transport that these two engines cannot use."""


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
    """Between processes of one host."""

    name = SHM

    def __init__(self, memory: KVMemory, peers: PeerMemories, checksum: bool) -> None:
        self._memory = memory
        self._peers = peers
        self._checksum = checksum

    def export_blocks(self, job: ExportBlocks) -> Exported:
        generations = self._memory.generations(job.blocks)
        return Exported(job.seq, generations, _checksums(self._memory, job.blocks, self._checksum), ())

    def import_blocks(self, job: ImportBlocks) -> Imported:
        started = perf_counter()
        try:
            fault = self._copy(job)
        except MemoryUnreachableError as error:
            fault = str(error)
        return _imported(job, fault, started)

    def _copy(self, job: ImportBlocks) -> str | None:
        message = job.message
        if job.source is None:
            return "the sender named no memory"
        pool = self._peers.open(job.peer, job.source).blocks(self._memory.layout.shape)
        if len(message.generations) != len(message.source_blocks) or not all(
            0 <= block < len(pool) for block in message.source_blocks
        ):
            return "block ids or generations make no sense"
        if not pool.is_unchanged(message.source_blocks, message.generations):
            return "blocks were reused before the copy"
        for source, destination in zip(message.source_blocks, job.destinations, strict=True):
            self._memory[destination] = pool[source]
        if not pool.is_unchanged(message.source_blocks, message.generations):
            return "blocks were reused during the copy"
        return _checksum_fault(self._memory, job)


class TcpTransport:
    """Between any two engines, through their ZeroMQ sockets."""

    name = TCP

    def __init__(self, memory: KVMemory, checksum: bool) -> None:
        self._memory = memory
        self._checksum = checksum

    def export_blocks(self, job: ExportBlocks) -> Exported:
        payload = [self._memory[block].data for block in job.blocks]
        generations = self._memory.generations(job.blocks)
        return Exported(job.seq, generations, _checksums(self._memory, job.blocks, self._checksum), payload)

    def import_blocks(self, job: ImportBlocks) -> Imported:
        started = perf_counter()
        return _imported(job, self._copy(job), started)

    def _copy(self, job: ImportBlocks) -> str | None:
        frames, size = [memoryview(frame).cast("B") for frame in job.payload], self._memory.layout.block_bytes
        if len(frames) != len(job.destinations):
            return f"{len(frames)} payload frames for {len(job.destinations)} blocks"
        for frame, destination in zip(frames, job.destinations, strict=True):
            if len(frame) != size:
                return f"a payload frame of {len(frame)} bytes, want {size}"
            self._memory[destination] = np.frombuffer(frame, np.uint8)
        return _checksum_fault(self._memory, job)


def transports_of(memory: KVMemory, peers: PeerMemories, checksum: bool) -> Mapping[str, Transport]:
    """All transports of one service, by name."""
    transports: Sequence[Transport] = (SharedMemoryTransport(memory, peers, checksum), TcpTransport(memory, checksum))
    return {transport.name: transport for transport in transports}


def choose(setting: str, memory: MemoryRef | None, host: str, can_open: Callable[[MemoryRef], bool]) -> str:
    """The receiver's choice; ``setting`` is the topology's (auto, shm, tcp), ``memory`` the sender's pool.

    Raise `TransportError` if shm is demanded but the pool is out of reach.
    """
    if setting == TCP:
        return TCP
    if memory is not None and memory.host == host and can_open(memory):
        return SHM
    if setting == SHM:
        raise TransportError(
            "transport shm is demanded, but the sender's KV memory cannot be mapped here; use auto or tcp"
        )
    return TCP


def _checksums(memory: KVMemory, blocks: Sequence[int], wanted: bool) -> list[int]:
    return [zlib.crc32(memory[block].data) for block in blocks] if wanted else []


def _checksum_fault(blocks: KVBlocks, job: ImportBlocks) -> str | None:
    """Checked at the destination, so that the copy is covered too."""
    expected = job.message.checksums
    if expected and expected != [zlib.crc32(blocks[block].data) for block in job.destinations]:
        return "checksums differ"
    return None


def _imported(job: ImportBlocks, fault: str | None, started: float) -> Imported:
    if fault is not None:
        log.warning("dropped KV blocks", transfer=job.transfer, sender=job.peer, transport=job.transport, reason=fault)
    return Imported(job.message.seq, fault is None, perf_counter() - started)
