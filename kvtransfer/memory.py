"""KV pools in memory that the other processes of a host can map.

A pool is a header, a generation counter (uint64) for each block, and the blocks. On Linux it is an anonymous memory
file that peers reach through /proc, so that nothing is left behind however its owner dies; elsewhere a temporary
file. The header holds a random token that also travels in `MemoryRef`: reading it proves that both processes mean the
same memory, not two containers with the same process ids.

Reuse. The owner raises a block's generation before the block gets new content. A reader that finds the same
generation before and after its copy has copied what it was promised (a sequence lock with any number of readers and
no waiting).
"""

import fcntl
import mmap
import os
import secrets
import stat
import struct
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from kvtransfer.layout import KVLayout, align
from mesh.messages import MemoryRef

MAGIC = b"MSKVPL01"
TOKEN_BYTES = 16
HEADER = struct.Struct(f"<8s{TOKEN_BYTES}sQQ")  # magic, token, number of blocks, bytes of a block
MAX_PEERS = 64
# Take the pages now, where the system can: the first write to one costs ten copies, and a hand-over waits for it.
POPULATE = getattr(mmap, "MAP_POPULATE", 0)

Bytes2D = NDArray[np.uint8]  # [num_blocks, block_bytes]
Counters = NDArray[np.uint64]  # [num_blocks]


class MemoryUnreachableError(RuntimeError):
    """A peer's pool cannot be mapped here, or is not the one that was meant. The message says why."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where the parts of a pool lie, in bytes from its start."""

    num_blocks: int
    block_bytes: int

    @property
    def generations_offset(self) -> int:
        return align(HEADER.size)

    @property
    def blocks_offset(self) -> int:
        return align(self.generations_offset + 8 * self.num_blocks)

    @property
    def stride(self) -> int:
        return align(self.block_bytes)

    @property
    def size_bytes(self) -> int:
        return self.blocks_offset + self.num_blocks * self.stride

    def generations(self, buffer: mmap.mmap) -> Counters:
        return np.frombuffer(buffer, "<u8", self.num_blocks, self.generations_offset)

    def blocks(self, buffer: mmap.mmap) -> Bytes2D:
        flat = np.frombuffer(buffer, np.uint8, self.num_blocks * self.stride, self.blocks_offset)
        return flat.reshape(self.num_blocks, self.stride)[:, : self.block_bytes]


class KVMemory:
    """The pool of one service, zeroed, in memory that peers can map. Owned by one engine process until `close`."""

    def __init__(self, layout: KVLayout) -> None:
        self.layout = layout
        geometry = Geometry(layout.num_blocks, layout.block_bytes)
        self._size_bytes = geometry.size_bytes
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._fd, self._path, self._is_file = _create(self._size_bytes)
        buffer = mmap.mmap(self._fd, self._size_bytes, flags=mmap.MAP_SHARED | POPULATE)
        buffer[: HEADER.size] = HEADER.pack(MAGIC, self._token, layout.num_blocks, layout.block_bytes)
        self.generations: Counters = geometry.generations(buffer)
        self.blocks: Bytes2D = geometry.blocks(buffer)  # writable; rows start at multiples of 64 bytes

    def __repr__(self) -> str:
        return f"<KVMemory {self._path} {self.layout.num_blocks} blocks of {self.layout.block_bytes} bytes>"

    def ref(self, host: str) -> MemoryRef:
        """How peers on ``host``, which must be this one, find the pool."""
        return MemoryRef(host, self._path, self._size_bytes, self._token.hex())

    def bump(self, block: int) -> None:
        """Tell readers that ``block`` is about to get new content."""
        self.generations[block] += np.uint64(1)

    def close(self) -> None:
        """Let no new peer in. The memory itself goes with the last array over it, and the last peer's mapping."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if self._is_file:
                os.unlink(self._path)


def _create(size_bytes: int) -> tuple[int, str, bool]:
    """File descriptor, path for peers, and whether the path has to be unlinked."""
    if not hasattr(os, "memfd_create"):
        fd, path = tempfile.mkstemp(prefix="meshserve-kv-")
        os.ftruncate(fd, size_bytes)
        return fd, path, True
    fd = os.memfd_create("meshserve-kv", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    # A reader must never be killed because the file shrank under its mapping.
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd, f"/proc/{os.getpid()}/fd/{fd}", False


class PeerMemory:
    """A peer's pool, mapped read-only. Unmapped when the last reference to it and its arrays is gone."""

    def __init__(self, ref: MemoryRef) -> None:
        """Raise `MemoryUnreachableError` unless this is the memory that ``ref`` means."""
        buffer = _map(ref)
        magic, token, num_blocks, block_bytes = HEADER.unpack(buffer[: HEADER.size])
        geometry = Geometry(num_blocks, block_bytes)
        if magic != MAGIC or token.hex() != ref.token or geometry.size_bytes != ref.size_bytes:
            raise MemoryUnreachableError(
                f"{ref.path} is another memory than the peer means (host {ref.host!r} here too?)"
            )
        self.block_bytes: int = block_bytes
        self.num_blocks: int = num_blocks
        self.generations: Counters = geometry.generations(buffer)
        self.blocks: Bytes2D = geometry.blocks(buffer)

    def is_unchanged(self, blocks: Sequence[int], generations: Sequence[int]) -> bool:
        """Whether none of ``blocks`` was reused since it had its generation."""
        return bool(self.generations[list(blocks)].tolist() == list(generations))


def _map(ref: MemoryRef) -> mmap.mmap:
    if ref.size_bytes < HEADER.size:
        raise MemoryUnreachableError(f"{ref.path}: {ref.size_bytes} bytes hold no pool")
    try:
        # A peer names the path: never wait for a FIFO's other end.
        fd = os.open(ref.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise MemoryUnreachableError(f"cannot open {ref.path}: {error}") from error
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size != ref.size_bytes:
            raise MemoryUnreachableError(f"{ref.path} has {info.st_size} bytes, the peer's pool {ref.size_bytes}")
        return mmap.mmap(fd, ref.size_bytes, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise MemoryUnreachableError(f"cannot map {ref.path}: {error}") from error
    finally:
        os.close(fd)


class PeerMemories:
    """Pools of peers, mapped once and kept while used: the least recently used goes when there are too many.

    Safe to use from several threads. A pool that is forgotten while somebody copies from it is unmapped after the copy.
    """

    def __init__(self, max_peers: int = MAX_PEERS) -> None:
        self._max_peers = max_peers
        self._lock = Lock()
        self._pools: OrderedDict[tuple[str, str], tuple[str, PeerMemory]] = OrderedDict()  # by path and token

    def __repr__(self) -> str:
        return f"<PeerMemories {[peer for peer, _ in self._pools.values()]}>"

    def __len__(self) -> int:
        return len(self._pools)

    def open(self, peer: str, ref: MemoryRef) -> PeerMemory:
        """Raise `MemoryUnreachableError` if the pool of process ``peer`` cannot be mapped here."""
        key = ref.path, ref.token
        with self._lock:
            found = self._pools.get(key)
            pool = PeerMemory(ref) if found is None else found[1]
            self._pools[key] = peer, pool
            self._pools.move_to_end(key)
            if len(self._pools) > self._max_peers:
                self._pools.popitem(last=False)
            return pool

    def can_open(self, peer: str, ref: MemoryRef) -> bool:
        with suppress(MemoryUnreachableError):
            self.open(peer, ref)
            return True
        return False

    def forget(self, peer: str) -> None:
        """Drop the pools of a process that died."""
        with self._lock:
            for key in [key for key, (owner, _) in self._pools.items() if owner == peer]:
                del self._pools[key]
