"""A process's publishing socket, which its event loop and its pulse use."""

import asyncio
from collections.abc import Sequence
from threading import Lock
from typing import Any

import zmq

from mesh.sockets.inlet import Inlet


class Broadcast:
    """A publishing socket for two threads: a lock stands before each call of libzmq. None of the calls waits."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = _Locked(socket)
        self._inlet = Inlet(self._socket)
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, address: str) -> None:
        """Raise `zmq.ZMQError` if it is taken."""
        self._socket.bind(address)

    def send(self, frames: Sequence[bytes]) -> None:
        """Publish from the event loop."""
        self._socket.send_multipart(frames, zmq.DONTWAIT)
        self._inlet.look()  # sending may have taken the descriptor's signal that a subscription came

    def send_from_thread(self, frames: Sequence[bytes]) -> None:
        """Publish from any other thread."""
        self._socket.send_multipart(frames, zmq.DONTWAIT)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._inlet.look)

    async def receive(self) -> bytes:
        """The next subscription, or end of one: a byte and the topic."""
        self._loop = asyncio.get_running_loop()
        return (await self._inlet.receive())[0].bytes

    def close(self) -> None:
        self._inlet.close()


class _Locked:
    """The calls of a socket that several threads use."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        self._lock = Lock()

    def bind(self, address: str) -> None:
        self._socket.bind(address)

    def send_multipart(self, frames: Sequence[bytes], flags: int) -> None:
        with self._lock:
            self._socket.send_multipart(frames, flags)

    def recv_multipart(self, flags: int, copy: bool) -> Sequence[Any]:
        with self._lock:
            return self._socket.recv_multipart(flags, copy=copy)

    def getsockopt(self, option: int) -> object:
        with self._lock:
            return self._socket.getsockopt(option)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        with self._lock:
            self._socket.close()
