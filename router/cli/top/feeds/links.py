"""Reads the feed of each gateway, again and again: a gateway may die, have a successor, or come back elsewhere."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from router.cli.top.feeds.events import EventError, FeedEvents
from router.cli.top.feeds.http import GetError, get
from router.feed.frames import Bye, Frame, Hello, decode

SILENCE_S: Final = 40.0  # a gateway with no news says so every 15 seconds
RETRY_S: Final = 0.5
LONGEST_RETRY_S: Final = 5.0


class Link:
    """One gateway's feed. ``url``: where its admin address is now; None: nobody knows."""

    def __init__(
        self,
        gateway: str,
        url: Callable[[str], str | None],
        headers: Mapping[str, str],
        take: Callable[[str, Frame], None],
        lose: Callable[[str, str], None],
    ) -> None:
        self._gateway = gateway
        self._url = url
        self._headers = headers
        self._take = take
        self._lose = lose
        self._retry_s = RETRY_S

    def __repr__(self) -> str:
        return f"<Link to {self._gateway}>"

    async def run(self) -> None:
        """Read, and never return; cancel it."""
        while True:
            try:
                await self._read()
                self._lose(self._gateway, "its feed ended")
            except (GetError, EventError) as error:
                self._lose(self._gateway, str(error))
            except msgspec.MsgspecError:
                self._lose(self._gateway, "what it tells is no feed of this version")
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)

    async def _read(self) -> None:
        url = self._url(self._gateway)
        if url is None:
            raise GetError("it does not run, or says nothing")
        events = FeedEvents()
        async with get(f"{url}/mesh/feed", self._headers) as answer:
            async for piece in answer.pieces(SILENCE_S):
                for data in events.feed(piece):
                    frame = decode(data)
                    self._check(frame)
                    self._take(self._gateway, frame)
                    if isinstance(frame, Bye):
                        return

    def _check(self, frame: Frame) -> None:
        if isinstance(frame, Hello):
            if frame.gateway != self._gateway:
                raise GetError(f"the gateway {frame.gateway} answers in its place")
            self._retry_s = RETRY_S
