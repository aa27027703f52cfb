"""Transport ``nixl``: blocks are read into a landing buffer of the receiver, checked, and copied to their places."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

import numpy as np

from kvtransfer.copy_checks import checksum_fault, checksums, copy_unchanged, imported
from kvtransfer.gpu.device import MESSAGE_BYTES, Bytes, DeviceError, Offsets
from kvtransfer.gpu.device_memory import PAGES_AT, DeviceKVMemory, DeviceMemory
from kvtransfer.memory import KVMemory, MemoryUnreachableError, PagedMemory
from kvtransfer.nixl.agent import DRAM, Agent
from kvtransfer.nixl.links import HostLanding, Landing, NixlLimits, NixlLinks, Slot
from kvtransfer.protocol import Buffer, ExportBlocks, Exported, ImportBlocks, Imported, TransferLimits
from mesh.errors import UserError
from mesh.transports import NIXL, missing_transport
from mesh.wire.transfers import NixlRef


class BlockPlaces(Protocol):
    """What differs between blocks on the host and on a GPU."""

    def contents(self, blocks: Sequence[int]) -> Sequence[Buffer]:
        """Return the bytes of blocks of this engine, to be summed up."""

    def take(self, slot: Slot, blocks: Sequence[int]) -> None:
        """Copy what has landed, one block after the other, to ``blocks``, and wait for it."""


class HostPlaces:
    def __init__(self, memory: KVMemory) -> None:
        self._memory = memory

    def contents(self, blocks: Sequence[int]) -> Sequence[Buffer]:
        return [self._memory[block].data for block in blocks]

    def take(self, slot: Slot, blocks: Sequence[int]) -> None:
        assert isinstance(slot.content, HostLanding), "what is kept on the host lands there"
        size = self._memory.layout.block_bytes
        for number, block in enumerate(blocks):
            self._memory[block] = slot.content.bytes[number * size : (number + 1) * size]


class DevicePlaces:
    """``read`` copies blocks to the host [n, block_bytes]."""

    def __init__(self, memory: DeviceKVMemory, read: Callable[[Sequence[int]], Bytes]) -> None:
        self._memory = memory
        self._read = read
        self._stream = memory.device.stream()

    def contents(self, blocks: Sequence[int]) -> Sequence[Buffer]:
        return [row.data for row in self._read(blocks)]

    def take(self, slot: Slot, blocks: Sequence[int]) -> None:
        memory, size = self._memory, self._memory.layout.block_bytes
        packed: Offsets = np.arange(len(blocks), dtype=np.int64) * size
        memory.device.copy_pieces(slot.content, packed, memory.region, memory.offsets(blocks), size, self._stream)
        self._stream.synchronize()  # before anyone uses the blocks, and the slot


class NixlTransport:
    """Moves blocks between any two engines that have agents of NIXL."""

    name = NIXL

    def __init__(
        self, memory: KVMemory | DeviceKVMemory, places: BlockPlaces, links: NixlLinks, checksum: bool
    ) -> None:
        self._memory = memory
        self._places = places
        self._links = links
        self._checksum = checksum

    def export_blocks(self, job: ExportBlocks) -> Exported:
        try:
            sums = checksums(self._places.contents(job.blocks)) if self._checksum else []
        except DeviceError:
            sums = [-1] * len(job.blocks)  # none has that sum: the receiver will not take them
        return Exported(job.seq, self._memory.generations(job.blocks), sums, ())

    def import_blocks(self, job: ImportBlocks) -> Imported:
        started = perf_counter()
        try:
            fault = self._copy(job) or checksum_fault(job, lambda: self._places.contents(job.destinations))
        except (MemoryUnreachableError, DeviceError) as error:
            fault = str(error)
        return imported(job, fault, started)

    def _copy(self, job: ImportBlocks) -> str | None:
        if job.source is None:
            return "the sender named no memory"
        with self._links.slot() as slot:
            pool = self._links.open(job.peer, job.source, slot).blocks(self._memory.layout.shape, slot)

            def copy() -> None:
                pool.read(job.message.source_blocks)
                self._places.take(slot, job.destinations)

            return copy_unchanged(job, pool, copy)


def open_nixl(memory: PagedMemory | DeviceMemory) -> NixlLinks:
    """Register an engine's KV memory with an agent of its own, so that peers can read it.

    Raise `UserError` if the package is not installed, `NixlError` if NIXL cannot begin.
    """
    if problem := missing_transport(NIXL):
        raise UserError(problem)
    from kvtransfer.nixl.bindings import NixlAgent  # only engines that are told to use NIXL load it

    return links_of(memory, NixlAgent(memory.token))


def links_of(memory: PagedMemory | DeviceMemory, agent: Agent) -> NixlLinks:
    """As `open_nixl`, with an agent that is there."""
    counted = memory.counted_bytes
    land: Callable[[int], Landing]
    agent.register(DRAM, counted.ctypes.data, counted.nbytes)
    if isinstance(memory, DeviceMemory):
        region, segment, land = memory.region, memory.device.segment, memory.device.allocate
        agent.register(segment, region.address, region.num_bytes)
        pages_at, message_bytes = region.address + PAGES_AT, MESSAGE_BYTES
    else:
        segment, land = DRAM, _host_landing
        pages_at, message_bytes = memory.pages.ctypes.data, TransferLimits().message_bytes
    memory.nixl = NixlRef(agent.metadata(), counted.ctypes.data, pages_at, segment.kind, segment.number)
    return NixlLinks(agent, segment, land, NixlLimits(max(message_bytes, memory.layout.page_bytes)))


def _host_landing(num_bytes: int) -> HostLanding:
    return HostLanding(np.zeros(num_bytes, np.uint8))
