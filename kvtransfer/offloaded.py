"""KV blocks of requests that hold none for now: copies in host memory, out of the pool's way."""

from collections.abc import Sequence
from threading import Lock

from kvtransfer.block_copies import copies_of
from kvtransfer.gpu.device import Bytes
from kvtransfer.gpu.device_memory import DeviceKVMemory
from kvtransfer.memory import KVMemory


class OffloadedBlocks:
    """Blocks of one service in host memory, by ticket. `keep` and `restore` copy and block, so call them in a worker
    thread; `forget` can be called from any thread.

    How much may be kept is the caller's business.
    """

    def __init__(self, memory: KVMemory | DeviceKVMemory) -> None:
        self._copies = copies_of(memory)
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
