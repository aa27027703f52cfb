"""Lets an event loop use a store on disk: one thread works on it, and what waits for that is bounded."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, Protocol, TypeVar

import structlog

from router.generation import Overloaded

MAX_WAITING: Final = 256
RETRY_AFTER_S: Final = 2.0

log = structlog.get_logger()


class Closable(Protocol):
    """A store that is open."""

    def close(self) -> None: ...


S = TypeVar("S", bound=Closable)
T = TypeVar("T")


class StoreThread(Generic[S]):
    """Opens a store when somebody needs it first. ``kind``: of what is in it, in the words of a person."""

    def __init__(self, kind: str, open_store: Callable[[], S], deadline_s: float) -> None:
        self._kind = kind
        self._open_store = open_store
        self._deadline_s = deadline_s
        self._thread = ThreadPoolExecutor(1, kind)
        self._num_waiting = 0
        self._store: S | None = None

    def __repr__(self) -> str:
        return f"<StoreThread {self._kind} {self._num_waiting} waiting>"

    async def run(self, work: Callable[[S], T]) -> T:
        """Return what ``work`` returns or raises. Raise `Overloaded` if too much waits, or the disk is too slow, full
        or broken.
        """
        if self._num_waiting >= MAX_WAITING:
            raise Overloaded(f"the store of {self._kind} has too much to do", RETRY_AFTER_S)
        self._num_waiting += 1
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)
        except (TimeoutError, sqlite3.Error, OSError) as error:
            log.error("a store fails", kind=self._kind, reason=repr(error))
            message = f"the store of {self._kind} does not answer; the gateway's log says why"
            raise Overloaded(message, RETRY_AFTER_S) from None
        finally:
            self._num_waiting -= 1

    def _do(self, work: Callable[[S], T]) -> T:
        if self._store is None:
            self._store = self._open_store()
        return work(self._store)

    def close(self) -> None:
        """Close it, once what waits is done."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._store is not None:
            self._store.close()
            self._store = None
