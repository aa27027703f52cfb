"""Reads from the memories of other agents: where they land, how long they may take, and which agents are known.

A read ends in a landing buffer of this process, never in the pool. A read cannot be taken back: with UCX over TCP, the
bytes of a peer that was stopped have been seen to come after its agent was disconnected. So a read that is late keeps
its buffer until it is over, and no other read of that peer begins before. Its blocks are long somebody else's by then.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from time import monotonic, sleep
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvtransfer.layout import KVLayout
from kvtransfer.memory import HEADER, MAGIC, MAGIC_DEVICE, Bytes, Geometry, geometry_of
from kvtransfer.nixl.agent import DRAM, Agent, MemoryPieces, NixlError, Segment
from mesh.wire.transfers import KVShape, MemoryRef, NixlRef

NUM_COUNTERS = 4096  # that are read at once
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 2e-5, 5e-4  # between two looks whether a read is over


@dataclass(frozen=True, slots=True)
class NixlLimits:
    """Bounds of one engine's reads. ``slot_bytes``: of one landing buffer, the most that one message may bring."""

    slot_bytes: int
    num_slots: int = 4  # buffers, each made when the others are in use
    read_s: float = 2.0  # for one read
    max_peers: int = 64


class Landing(Protocol):
    """Memory of this process in which contents land, of the kind that the engine keeps its KV in."""

    @property
    def address(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class HostLanding:
    bytes: Bytes

    @property
    def address(self) -> int:
        return self.bytes.ctypes.data

    @property
    def num_bytes(self) -> int:
        return self.bytes.nbytes


class Slot:
    """A landing buffer: for contents, and on the host for headers and counters."""

    def __init__(self, content: Landing, segment: Segment) -> None:
        self.content = content
        self.segment = segment
        self.counters: NDArray[np.uint64] = np.zeros(NUM_COUNTERS, np.uint64)
        self.late: tuple[int, str] | None = None  # a read that may still write here, and the agent that it reads from

    def rows(self, num_rows: int, row_bytes: int) -> MemoryPieces:
        """Pieces of the content, one after the other. Raise `NixlError` if there is no room for them."""
        if num_rows * row_bytes > self.content.num_bytes:
            raise NixlError(f"{num_rows} blocks of {row_bytes} bytes are more than one message brings")
        offsets = np.arange(num_rows, dtype=np.uint64) * np.uint64(row_bytes)
        return MemoryPieces(self.segment, offsets + np.uint64(self.content.address), row_bytes)


class NixlLinks:
    """The agent of this process with the memories of others. Call `forget` from any thread, the rest from one at a
    time.

    ``land`` makes memory to land in, in ``segment``.
    """

    def __init__(self, agent: Agent, segment: Segment, land: Callable[[int], Landing], limits: NixlLimits) -> None:
        self._agent = agent
        self._segment = segment
        self._land = land
        self._limits = limits
        self._lock = Lock()
        self._slots: list[Slot] = []
        self._known: OrderedDict[str, tuple[str, AgentMemory]] = OrderedDict()  # by agent: process, memory
        self._leaving: set[str] = set()  # agents to disconnect when no read of them is late any more

    def __repr__(self) -> str:
        late = [slot.late[1] for slot in self._slots if slot.late is not None]
        return f"<NixlLinks {list(self._known)} late {late} of {len(self._slots)} buffers>"

    def open(self, peer: str, ref: MemoryRef, slot: Slot) -> "AgentMemory":
        """Raise `NixlError` unless the memory of process ``peer`` can be read and is the one that ``ref`` means."""
        with self._lock:
            if ref.token in self._leaving or any(one.late and one.late[1] == ref.token for one in self._slots):
                raise NixlError("an earlier read of that memory is late and not over")
            if (found := self._known.get(ref.token)) is not None:
                self._known.move_to_end(ref.token)
                return found[1]
        if ref.nixl is None:
            raise NixlError("the sender named no memory to NIXL")
        memory = self._connect(ref, ref.nixl, slot)
        with self._lock:
            self._known[ref.token] = peer, memory
            if len(self._known) > self._limits.max_peers:
                self._leave(next(iter(self._known)))
        return memory

    def _connect(self, ref: MemoryRef, nixl: NixlRef, slot: Slot) -> "AgentMemory":
        name = self._agent.connect(nixl.metadata)
        if name != ref.token:
            raise NixlError(f"the metadata is that of agent {name!r}, and {ref.token!r} was meant")
        try:
            here = MemoryPieces(DRAM, np.array([slot.counters.ctypes.data], np.uint64), HEADER.size)
            self.read(slot, name, MemoryPieces(DRAM, np.array([nixl.address], np.uint64), HEADER.size), here)
            header = slot.counters.tobytes()[: HEADER.size]
            for magic in (MAGIC, MAGIC_DEVICE):
                if (geometry := geometry_of(header, ref, magic)) is not None:
                    return AgentMemory(self, name, geometry, nixl)
            raise NixlError("the peer's memory is another one than it means")
        except NixlError:
            if slot.late is None:
                self._disconnect(name)
            else:
                with self._lock:
                    self._leaving.add(name)
            raise

    @contextmanager
    def slot(self) -> Iterator[Slot]:
        """A landing buffer for one message. Raise `NixlError` if late reads hold all of them."""
        with self._lock:
            self._reap()
            free = next((slot for slot in self._slots if slot.late is None), None)
        if free is None:
            free = self._new_slot()
        yield free

    def _new_slot(self) -> Slot:
        if len(self._slots) >= self._limits.num_slots:
            raise NixlError("late reads hold all landing buffers")
        slot = Slot(self._land(self._limits.slot_bytes), self._segment)
        self._agent.register(self._segment, slot.content.address, slot.content.num_bytes)
        self._agent.register(DRAM, slot.counters.ctypes.data, slot.counters.nbytes)
        self._slots.append(slot)
        return slot

    def read(self, slot: Slot, name: str, there: MemoryPieces, here: MemoryPieces) -> None:
        """Wait until ``there`` is in ``here``, which is in ``slot``. Raise `NixlError` if it is not in time."""
        read, ends_at, pause_s = self._agent.begin(name, there, here), monotonic() + self._limits.read_s, 0.0
        slot.late = read, name
        while not self._is_over(slot):
            if monotonic() >= ends_at:
                raise NixlError(f"a read took longer than {self._limits.read_s:g} s")
            sleep(pause_s)
            pause_s = min(max(SHORTEST_PAUSE_S, 2 * pause_s), LONGEST_PAUSE_S)

    def _is_over(self, slot: Slot) -> bool:
        """Whether the read of a slot is over, which then is free. Raise `NixlError` if the read has failed."""
        assert slot.late is not None, "a read is under way"
        read, _ = slot.late
        try:
            if not self._agent.is_done(read):
                return False
        except NixlError:
            slot.late = None
            with suppress(NixlError):
                self._agent.end(read)
            raise
        slot.late = None
        self._agent.end(read)
        return True

    def _reap(self) -> None:
        for slot in self._slots:
            if slot.late is not None:
                with suppress(NixlError):
                    self._is_over(slot)
        late = {slot.late[1] for slot in self._slots if slot.late is not None}
        for name in self._leaving - late:
            self._leaving.discard(name)
            self._disconnect(name)

    def forget(self, peer: str) -> None:
        """Disconnect the agents of a process that died."""
        with self._lock:
            for name in [name for name, (owner, _) in self._known.items() if owner == peer]:
                self._leave(name)

    def _leave(self, name: str) -> None:
        """A read that has begun must be over before: a disconnected agent does not say when that is."""
        del self._known[name]
        if any(slot.late and slot.late[1] == name for slot in self._slots):
            self._leaving.add(name)
        else:
            self._disconnect(name)

    def _disconnect(self, name: str) -> None:
        with suppress(NixlError):
            self._agent.disconnect(name)


class AgentMemory:
    """Another agent's memory: where its header, counters and pages are."""

    def __init__(self, links: NixlLinks, name: str, geometry: Geometry, ref: NixlRef) -> None:
        self.links = links
        self.name = name
        self.layout = geometry.layout
        self.counters_at = ref.address + geometry.generations_offset
        self.pages_at = ref.pages_address
        self.segment = Segment(ref.kind, ref.number)

    def blocks(self, shape: KVShape, slot: Slot) -> "AgentBlocks":
        """Return the blocks of a service. Raise `NixlError` if the pages were not made for them."""
        layout = KVLayout(shape, self.layout)
        if not layout.slots:
            raise NixlError(f"the peer's pages are not made for blocks of {layout.block_bytes} bytes")
        return AgentBlocks(self, layout, slot)


class AgentBlocks:
    """The blocks of one service in another agent's memory. Raise `NixlError` where a read fails or is late."""

    def __init__(self, memory: AgentMemory, layout: KVLayout, slot: Slot) -> None:
        self._memory = memory
        self._layout = layout
        self._slot = slot

    def __len__(self) -> int:
        return self._layout.num_blocks

    def is_unchanged(self, blocks: Sequence[int], generations: Sequence[int]) -> bool:
        """Return whether none of ``blocks`` was reused since it had its generation."""
        found = [self._generations(blocks[at : at + NUM_COUNTERS]) for at in range(0, len(blocks), NUM_COUNTERS)]
        return [one for part in found for one in part] == list(generations)

    def _generations(self, blocks: Sequence[int]) -> list[int]:
        pages, places = np.divmod(np.asarray(blocks, np.uint64), np.uint64(self._layout.slots))
        offsets = (8 * (pages * np.uint64(self._layout.pages.most_slots) + places)).astype(np.uint64)
        counters = self._slot.counters[: len(blocks)]
        here = np.arange(len(blocks), dtype=np.uint64) * np.uint64(8) + np.uint64(counters.ctypes.data)
        there = MemoryPieces(DRAM, offsets + np.uint64(self._memory.counters_at), 8)
        self._memory.links.read(self._slot, self._memory.name, there, MemoryPieces(DRAM, here, 8))
        generations: list[int] = counters.tolist()
        return generations

    def read(self, blocks: Sequence[int]) -> None:
        """Read blocks into the slot's content, one after the other."""
        size, layout = self._layout.block_bytes, self._layout
        pages, places = np.divmod(np.asarray(blocks, np.uint64), np.uint64(layout.slots))
        offsets = (pages * np.uint64(layout.pages.page_bytes) + places * np.uint64(size)).astype(np.uint64)
        there = MemoryPieces(self._memory.segment, offsets + np.uint64(self._memory.pages_at), size)
        self._memory.links.read(self._slot, self._memory.name, there, self._slot.rows(len(blocks), size))
