"""Copies blocks of a service out of an engine's KV memory and back, whether that lies in the host or on a GPU."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kvtransfer.gpu.device import Bytes
from kvtransfer.gpu.device_memory import DeviceKVMemory
from kvtransfer.gpu.device_transports import Staging
from kvtransfer.memory import KVMemory


class BlockCopies(Protocol):
    """Both methods block. Raise `DeviceError` if the device fails, MemoryError if there is no room for copies."""

    def read(self, blocks: Sequence[int]) -> Bytes:
        """Return the content of blocks [n, block_bytes], a copy."""

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


def copies_of(memory: KVMemory | DeviceKVMemory) -> BlockCopies:
    return Staging(memory) if isinstance(memory, DeviceKVMemory) else _HostCopies(memory)
