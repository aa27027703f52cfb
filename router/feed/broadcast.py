"""Carries one feed to all who read it: what is told is composed and written out once, however many read."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from mesh.clock import Clock
from router.feed.feed import TICK_S, Feed, FeedSources
from router.feed.frames import Bye, encode

MOST_READERS: Final = 64
MOST_UNREAD: Final = 100  # pieces, at most ten a second: who leaves more unread is cut off and may connect again
KEEPALIVE_S: Final = 15.0
KEEPALIVE: Final = b": still here\n\n"


class _Reader:
    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_UNREAD + 1)  # None: it is over
        self.is_over = False

    def tell(self, piece: bytes) -> None:
        if self.pieces.qsize() < MOST_UNREAD:
            self.pieces.put_nowait(piece)
        else:
            self.end()

    def end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.pieces.put_nowait(None)


class FeedBroadcast:
    """One gateway's feed and its readers. Nothing is composed while nobody reads."""

    def __init__(self, sources: FeedSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._readers: set[_Reader] = set()
        self._feed: Feed | None = None
        self._somebody_reads = asyncio.Event()
        self._is_over = False

    def __repr__(self) -> str:
        return f"<FeedBroadcast to {len(self._readers)}: {self._feed!r}>"

    @property
    def num_readers(self) -> int:
        return len(self._readers)

    @property
    def is_full(self) -> bool:
        """Return whether nobody more may read."""
        return len(self._readers) >= MOST_READERS

    async def run(self) -> None:
        """Tell the readers what happens, and never return; cancel it."""
        while True:
            await self._somebody_reads.wait()
            self._tick()
            await asyncio.sleep(TICK_S)

    async def read(self) -> AsyncIterator[bytes]:
        """Pieces of the event stream, until the reader is too slow or the gateway leaves. Ask `is_full` before."""
        reader = _Reader()
        reader.tell(self._join(reader))
        if self._is_over:
            reader.end()
        try:
            while (piece := await self._next(reader)) is not None:
                yield piece
            yield encode(Bye(self._sources.wall(self._clock.now())))
        finally:
            self._leave(reader)

    def end(self) -> None:
        """Send all readers away, and all that come: the gateway ends or has a successor."""
        self._is_over = True
        for reader in self._readers:
            reader.end()

    async def _next(self, reader: _Reader) -> bytes | None:
        try:
            async with asyncio.timeout(KEEPALIVE_S):
                return await reader.pieces.get()
        except TimeoutError:
            return KEEPALIVE

    def _join(self, reader: _Reader) -> bytes:
        """Return how everything is. Others are told what is new first, as the newcomer's account has it already."""
        if self._feed is None:
            self._feed = Feed(self._sources)
        self._tick()
        self._readers.add(reader)
        self._somebody_reads.set()
        return self._feed.snapshot(self._clock.now())

    def _leave(self, reader: _Reader) -> None:
        self._readers.discard(reader)
        if not self._readers:
            self._feed = None
            self._somebody_reads.clear()

    def _tick(self) -> None:
        if self._feed is None:
            return
        piece = self._feed.tick(self._clock.now())
        if piece:
            for reader in self._readers:
                reader.tell(piece)
