"""KV blocks of requests that hold none for now: copies in host memory, out of the pool's way."""

from collections.abc import Sequence
from threading import Lock
from typing import Protocol

import numpy as np

from kvtransfer.gpu.device import Bytes
from kvtransfer.gpu.device_memory import DeviceKVMemory
from kvtransfer.gpu.device_transports import Staging
from kvtransfer.memory import KVMemory


class _Copies(Protocol):
    def read(self, blocks: Sequence[int]) -> Bytes:
        """The content of blocks [n, block_bytes], a copy."""

    def write(self, contents: Sequence[Bytes], blocks: Sequence[int]) -> None: ...


class _HostCopies:
    def __init__(self, memory: KVMemory) -> None:
        self._memory = memory

    def read(self, blocks: Sequence[int]) -> Bytes:
        rows = np.empty((len(blocks), self._memory.layout.block_bytes), np.uint8)
        for row, block in zip(rows, blocks, strict=True):
            row[:] = self._memory[block]
        return rows

    def write(self, contents: Sequence[Bytes], blocks: Sequence[int]) -> None:
        for content, block in zip(contents, blocks, strict=True):
            self._memory[block] = content


class OffloadedBlocks:
    """Blocks of one service in host memory, by ticket. `keep` and `restore` copy and block, so call them in a worker
    thread; `forget` can be called from any thread.

    How much may be kept is the caller's business.
    """

    def __init__(self, memory: KVMemory | DeviceKVMemory) -> None:
        self._copies: _Copies = Staging(memory) if isinstance(memory, DeviceKVMemory) else _HostCopies(memory)
        self._kept: dict[int, Bytes] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, ticket: int, blocks: Sequence[int]) -> None:
        """Raise `DeviceError` or MemoryError if they cannot be copied."""
        rows = self._copies.read(blocks)
        with self._lock:
            self._kept[ticket] = rows

    def restore(self, ticket: int, first: int, blocks: Sequence[int]) -> None:
        """Write what is kept, from its block ``first`` on, to ``blocks``. Raise `DeviceError` if that fails."""
        with self._lock:
            rows = self._kept[ticket]
        self._copies.write(list(rows[first : first + len(blocks)]), blocks)

    def forget(self, ticket: int) -> None:
        with self._lock:
            self._kept.pop(ticket, None)
