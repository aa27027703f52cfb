"""A plain ZeroMQ socket's messages for asyncio.

pyzmq's asyncio sockets run more than a hundred Python calls a message, most of what a token costs a gateway. Here a
message that has already arrived costs one call, and waiting for one costs a future.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import zmq

MAX_IN_A_ROW = 64  # messages taken before the event loop gets its turn


class Receiving(Protocol):
    """What is wanted of a socket."""

    def recv_multipart(self, flags: int, copy: bool) -> Sequence[Any]: ...

    def getsockopt(self, option: int) -> object: ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Inlet:
    """Receives for one consumer. The event loop must be running.

    ``rest_s``: for so long the inlet does not look after a message came. What comes meanwhile is read with it, which
    takes less time than waking up for each.
    """

    def __init__(self, socket: Receiving, rest_s: float = 0.0) -> None:
        self._socket = socket
        self._rest_s = rest_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._in_a_row = 0

    async def receive(self) -> Sequence[zmq.Frame]:
        """The next message's frames, not copied."""
        self._in_a_row += 1
        if self._in_a_row > MAX_IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)
        while True:
            try:
                return self._socket.recv_multipart(zmq.DONTWAIT, copy=False)
            except zmq.Again:  # libzmq has looked at its mailbox: the descriptor tells of whatever comes from now on
                self._in_a_row = 0
                await self._readable()

    async def _readable(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._socket.fileno(), self._wake)
        self._waiter = self._loop.create_future()
        await self._waiter
        if self._rest_s:
            self._loop.remove_reader(self._socket.fileno())  # or each message that comes would wake the event loop
            self._loop = None
            await asyncio.sleep(self._rest_s)

    def look(self) -> None:
        """Something else was done with the socket: the descriptor's signal may be gone."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        else:
            self._socket.getsockopt(zmq.EVENTS)  # takes the signal, or the loop would call again and again

    def close(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
