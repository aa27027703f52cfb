"""The store of responses for an event loop: one thread works on it, and what waits for it is bounded."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import structlog

from mesh.topology.responses import ResponsesSpec
from router.api.responses.store import ResponseStore, StoredResponse
from router.generation import Overloaded

MAX_WAITING: Final = 256
DEADLINE_S: Final = 10.0
RETRY_AFTER_S: Final = 2.0

T = TypeVar("T")

log = structlog.get_logger()


class StoredResponses:
    """Opens the store when somebody needs it first. ``path`` None: nothing is kept."""

    def __init__(self, path: Path | None, max_bytes: int, max_age_s: float) -> None:
        self.path: Final = path
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._thread = ThreadPoolExecutor(1, "responses")
        self._num_waiting = 0
        self._store: ResponseStore | None = None

    @classmethod
    def of(cls, spec: ResponsesSpec, mesh: str) -> "StoredResponses":
        """Make that of a mesh."""
        folder = spec.folder or state_folder(mesh)
        return cls(folder / "responses.sqlite" if spec.keep else None, spec.max_bytes, spec.max_age_s)

    def __repr__(self) -> str:
        return f"<StoredResponses {self.path} {self._num_waiting} waiting>"

    async def keep(self, stored: StoredResponse) -> bool:
        """Return whether it is kept: whatever is wrong with the store, there is an answer."""
        try:
            return await self._run(lambda store: store.put(stored))
        except Overloaded:
            return False

    async def get(self, id_: str, owner: str, now: float) -> StoredResponse | None:
        """Raise `Overloaded` if the store does not answer."""
        return None if self.path is None else await self._run(lambda store: store.get(id_, owner, now))

    async def delete(self, id_: str, owner: str) -> bool:
        """Raise `Overloaded` if the store does not answer."""
        return self.path is not None and await self._run(lambda store: store.delete(id_, owner))

    async def _run(self, work: Callable[[ResponseStore], T]) -> T:
        if self._num_waiting >= MAX_WAITING:
            raise Overloaded("the store of responses has too much to do", RETRY_AFTER_S)
        self._num_waiting += 1
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)
        except (TimeoutError, sqlite3.Error, OSError) as error:
            log.error("the store of responses fails", path=str(self.path), reason=repr(error))
            message = "the store of responses does not answer; the gateway's log says why"
            raise Overloaded(message, RETRY_AFTER_S) from None
        finally:
            self._num_waiting -= 1

    def _do(self, work: Callable[[ResponseStore], T]) -> T:
        if self._store is None:
            assert self.path is not None, "asked only where something is kept"
            self._store = ResponseStore(self.path, self._max_bytes, self._max_age_s)
        return work(self._store)

    def close(self) -> None:
        """Close it, once what waits is done."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._store is not None:
            self._store.close()
            self._store = None


def state_folder(mesh: str) -> Path:
    """Return where the responses of a mesh are, unless its topology says where."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "meshserve" / mesh / "responses"


def nothing_stored() -> StoredResponses:
    return StoredResponses(None, 0, 0.0)
