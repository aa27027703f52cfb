"""KV memory that the other processes of a host can map, and the blocks of services in it.

A memory is a header, generation counters (uint64, one for each slot of each page), and the pages. On Linux it is an
anonymous memory file that peers reach through /proc, so that nothing is left behind however its owner dies; elsewhere
a temporary file. The header holds a random token that also travels in `MemoryRef`: reading it proves that both
processes mean the same memory, not two containers with the same process ids.

A GPU's memory (`kvtransfer.gpu.device_memory`) has its pages on the device; header and counters lie here in the same
way.

Reuse. The owner raises a block's generation before the block gets new content, and those of a whole page before the
page changes hands. A reader that finds the same generation before and after its copy has copied what it was promised (a
sequence lock with any number of readers and no waiting).
"""

import fcntl
import mmap
import os
import secrets
import stat
import struct
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvtransfer.layout import KVLayout, PageLayout, align
from mesh.wire.transfers import KVShape, MemoryRef, NixlRef

MAGIC = b"MSKVPL02"  # pages follow the counters
MAGIC_DEVICE = b"MSKVPD02"  # pages lie on a GPU
TOKEN_BYTES = 16
HEADER = struct.Struct(f"<8s{TOKEN_BYTES}sQQQ")  # magic, token, number of pages, bytes of a page, counters of a page
# Take the pages now, where the system can: the first write to one costs ten copies, and a hand-over waits for it.
POPULATE = getattr(mmap, "MAP_POPULATE", 0)

Bytes = NDArray[np.uint8]
Counters = NDArray[np.uint64]  # [num_pages, most_slots]


class MemoryUnreachableError(RuntimeError):
    """A peer's memory cannot be mapped here, or is not the one that was meant. The message says why."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Places of the parts of a memory, in bytes from its start. Without ``has_pages`` the pages lie elsewhere."""

    layout: PageLayout
    has_pages: bool = True

    @property
    def generations_offset(self) -> int:
        return align(HEADER.size)

    @property
    def pages_offset(self) -> int:
        return align(self.generations_offset + 8 * self.layout.num_pages * self.layout.most_slots)

    @property
    def size_bytes(self) -> int:
        return self.pages_offset + self.has_pages * self.layout.num_pages * self.layout.page_bytes

    def generations(self, buffer: mmap.mmap) -> Counters:
        shape = self.layout.num_pages, self.layout.most_slots
        return np.frombuffer(buffer, "<u8", shape[0] * shape[1], self.generations_offset).reshape(shape)

    def pages(self, buffer: mmap.mmap) -> Bytes:
        shape = self.layout.num_pages, self.layout.page_bytes
        return np.frombuffer(buffer, np.uint8, shape[0] * shape[1], self.pages_offset).reshape(shape)


class BlockCounters:
    """The generations of one service's blocks, wherever their content lies: block ``b`` has `divmod(b, slots)`'s.

    Raise ValueError if the pages were not made for such blocks.
    """

    def __init__(self, layout: KVLayout, generations: Counters) -> None:
        if not layout.slots:
            pages, size = layout.pages.page_bytes, layout.block_bytes
            raise ValueError(f"pages of {pages} bytes are not made for blocks of {size} bytes")
        self.layout = layout
        self._slots = layout.slots
        self._generations = generations

    def __len__(self) -> int:
        return self.layout.num_blocks

    def generations(self, blocks: Sequence[int]) -> list[int]:
        pages, slots = np.divmod(np.asarray(blocks, np.intp), self._slots)
        generations: list[int] = self._generations[pages, slots].tolist()
        return generations

    def is_unchanged(self, blocks: Sequence[int], generations: Sequence[int]) -> bool:
        """Return whether none of ``blocks`` was reused since it had its generation."""
        return self.generations(blocks) == list(generations)


class KVBlocks(BlockCounters):
    """The blocks of one service, in pages here or of a peer: block ``b`` is ``array[divmod(b, slots)]``.

    Raise ValueError if the pages were not made for such blocks.
    """

    def __init__(self, layout: KVLayout, pages: Bytes, generations: Counters) -> None:
        super().__init__(layout, generations)
        slots, size = layout.slots, layout.block_bytes
        self.array: Bytes = pages[:, : slots * size].reshape(-1, slots, size)

    def __getitem__(self, block: int) -> Bytes:
        content: Bytes = self.array[divmod(block, self._slots)]
        return content

    def __setitem__(self, block: int, content: Bytes) -> None:
        self.array[divmod(block, self._slots)] = content


class CountedPages(ABC):
    """An engine's KV memory: header and counters in shared memory, pages there or elsewhere. One process owns it."""

    def __init__(self, layout: PageLayout, magic: bytes, has_pages: bool) -> None:
        self.layout = layout
        self._geometry = Geometry(layout, has_pages)
        self._token = secrets.token_bytes(TOKEN_BYTES)
        size_bytes = self._geometry.size_bytes
        self._fd, self._path, self._is_file = _create(size_bytes)
        self._buffer = mmap.mmap(self._fd, size_bytes, flags=mmap.MAP_SHARED | POPULATE)
        numbers = layout.num_pages, layout.page_bytes, layout.most_slots
        self._buffer[: HEADER.size] = HEADER.pack(magic, self._token, *numbers)
        self.generations: Counters = self._geometry.generations(self._buffer)
        self.dtypes: list[str | None] = [None] * layout.num_pages  # of what each page holds; None: zeros
        self.nixl: NixlRef | None = None  # how agents of NIXL read it, once it is registered with one

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<{name} {self._path} {self.layout.num_pages} pages of {self.layout.page_bytes} bytes>"

    @abstractmethod
    def zero_page(self, page: int) -> None:
        """All of it is zeros when this returns."""

    @property
    def token(self) -> str:
        return self._token.hex()

    @property
    def counted_bytes(self) -> Bytes:
        """Header and counters, and the pages if they are here: all that peers can map."""
        return np.frombuffer(self._buffer, np.uint8)

    def ref(self, host: str) -> MemoryRef:
        """Return how peers on ``host``, which must be this one, find the memory."""
        return MemoryRef(host, self._path, self._geometry.size_bytes, self.token, nixl=self.nixl)

    def close(self) -> None:
        """Let no new peer in. The memory itself goes with the last array over it, and the last peer's mapping."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if self._is_file:
                os.unlink(self._path)


class PagedMemory(CountedPages):
    """KV memory of the host, zeroed, that peers can map. Owned by one process until `close`."""

    def __init__(self, layout: PageLayout) -> None:
        super().__init__(layout, MAGIC, has_pages=True)
        self.pages: Bytes = self._geometry.pages(self._buffer)  # [num_pages, page_bytes], writable, in one piece

    def zero_page(self, page: int) -> None:
        self.pages[page] = 0


class OwnedBlocks(BlockCounters):
    """One service's blocks in the memory of its engine. Raise ValueError if the pages were not made for them."""

    _memory: CountedPages

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<{name} {self.layout.num_blocks} blocks of {self.layout.block_bytes} bytes in {self._memory!r}>"

    def ref(self, host: str) -> MemoryRef:
        return self._memory.ref(host)

    def close(self) -> None:
        self._memory.close()

    def take_page(self, page: int) -> None:
        """Tell readers that all of a page is about to get new content.

        What lies there is zeroed if it has another dtype: its bytes could be infinite in this one, and what is masked
        in attention must at least be finite.
        """
        memory, dtype = self._memory, self.layout.shape.dtype
        memory.generations[page] += np.uint64(1)
        if memory.dtypes[page] != dtype:
            if memory.dtypes[page] is not None:
                memory.zero_page(page)
            memory.dtypes[page] = dtype

    def reuse(self, block: int) -> None:
        """Tell readers that ``block`` is about to get new content."""
        self._memory.generations[divmod(block, self._slots)] += np.uint64(1)


class KVMemory(KVBlocks, OwnedBlocks):
    """One service's blocks in the host memory of its engine. Raise ValueError if the pages were not made for them."""

    def __init__(self, memory: PagedMemory, shape: KVShape) -> None:
        super().__init__(KVLayout(shape, memory.layout), memory.pages, memory.generations)
        self._memory = memory

    @classmethod
    def alone(cls, shape: KVShape, num_pages: int) -> "KVMemory":
        """Make the KV memory of one service, in a memory of its own."""
        return cls(PagedMemory(PageLayout.of([shape], num_pages)), shape)


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
    """A peer's memory, mapped read-only. Unmapped when the last reference to it and its arrays is gone."""

    def __init__(self, ref: MemoryRef) -> None:
        """Raise `MemoryUnreachableError` unless this is the memory that ``ref`` means, with pages of the host."""
        geometry, buffer = map_counted(ref, MAGIC)
        self.layout = geometry.layout
        self.generations: Counters = geometry.generations(buffer)
        self.pages: Bytes = geometry.pages(buffer)

    def blocks(self, shape: KVShape) -> KVBlocks:
        """Return the blocks of a service. Raise `MemoryUnreachableError` if the pages were not made for them."""
        try:
            return KVBlocks(KVLayout(shape, self.layout), self.pages, self.generations)
        except ValueError as error:
            raise MemoryUnreachableError(str(error)) from None


def map_counted(ref: MemoryRef, magic: bytes) -> tuple[Geometry, mmap.mmap]:
    """Map a peer's header and counters, and its pages if they are there.

    Raise `MemoryUnreachableError` unless it is the memory that ``ref`` means, of the kind that ``magic`` names.
    """
    buffer = _map(ref)
    geometry = geometry_of(buffer[: HEADER.size], ref, magic)
    if geometry is None:
        raise MemoryUnreachableError(f"{ref.path} is another memory than the peer means (host {ref.host!r} here too?)")
    return geometry, buffer


def geometry_of(header: bytes, ref: MemoryRef, magic: bytes) -> Geometry | None:
    """Return what a header says of its memory; None: that is not the one that ``ref`` means, or of another kind."""
    found, token, *numbers = HEADER.unpack(header)
    geometry = Geometry(PageLayout(*numbers), has_pages=magic == MAGIC)
    is_meant = found == magic and token.hex() == ref.token and geometry.size_bytes == ref.size_bytes
    return geometry if is_meant else None


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
