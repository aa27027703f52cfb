"""The store of batches for an event loop."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from router.batches.store import BatchStore
from router.stores.store_thread import StoreThread

DEADLINE_S: Final = 30.0

T = TypeVar("T")


class StoredBatches:
    """A mesh without batches has no store: it is opened when somebody asks for it first."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder: Final = folder
        self.max_bytes: Final = max_bytes
        self._thread = StoreThread("batches", partial(BatchStore, folder, max_bytes), DEADLINE_S)

    def __repr__(self) -> str:
        return f"<StoredBatches {self.folder} {self._thread!r}>"

    @property
    def exists(self) -> bool:
        """Return whether there may be anything."""
        return (self.folder / "batches.sqlite").exists()

    async def run(self, work: Callable[[BatchStore], T]) -> T:
        """Return what ``work`` returns or raises. Raise `Overloaded` if the store does not answer."""
        return await self._thread.run(work)

    def close(self) -> None:
        """Close it, once what waits is done."""
        self._thread.close()
