"""The store of batches for an event loop: one thread works on it, and what waits for it is bounded."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import structlog

from router.batches.store import BatchStore
from router.generation import Overloaded

MAX_WAITING: Final = 256
DEADLINE_S: Final = 30.0
RETRY_AFTER_S: Final = 2.0

T = TypeVar("T")

log = structlog.get_logger()


class StoredBatches:
    """Opens the store when somebody asks for it first: a mesh without batches has none."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder: Final = folder
        self.max_bytes: Final = max_bytes
        self._thread = ThreadPoolExecutor(1, "batches")
        self._num_waiting = 0
        self._store: BatchStore | None = None

    def __repr__(self) -> str:
        return f"<StoredBatches {self.folder} {self._num_waiting} waiting>"

    @property
    def exists(self) -> bool:
        """Return whether there may be anything."""
        return (self.folder / "batches.sqlite").exists()

    async def run(self, work: Callable[[BatchStore], T]) -> T:
        """Return what ``work`` returns or raises. Raise `Overloaded` if too much waits, or the disk is too slow, full
        or broken.
        """
        if self._num_waiting >= MAX_WAITING:
            raise Overloaded("the store of batches has too much to do", RETRY_AFTER_S)
        self._num_waiting += 1
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)
        except (TimeoutError, sqlite3.Error, OSError) as error:
            log.error("the store of batches fails", folder=str(self.folder), reason=repr(error))
            raise Overloaded(
                "the store of batches does not answer; the gateway's log says why", RETRY_AFTER_S
            ) from None
        finally:
            self._num_waiting -= 1

    def _do(self, work: Callable[[BatchStore], T]) -> T:
        if self._store is None:
            self._store = BatchStore(self.folder, self.max_bytes)
        return work(self._store)

    def close(self) -> None:
        """Close it, once what waits is done."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._store is not None:
            self._store.close()
            self._store = None
