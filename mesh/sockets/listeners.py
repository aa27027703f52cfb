"""Hands a process's listening sockets to its successor, so that nobody who connects meanwhile is turned away.

Both are processes of one user on one host. The one that listens waits at a Unix socket in the runtime folder. Its
successor connects, is sent the sockets, and says when it serves: only then does the other one stop to accept. The queue
of connections that nobody has accepted yet belongs to the socket, which both have, and so is never lost. If the
successor dies before it serves, nothing has changed.
"""

import asyncio
import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from mesh.process.lazy_log import LazyLog

MAX_SOCKETS = 16
MAX_BYTES = 4096
TAKE_S = 2.0
SERVE_S = 600.0  # that a successor has to start to serve
SERVING = b"serving"
PEER = struct.Struct("3i")  # pid, user and group of whoever connected

log = LazyLog()


def handover_file(runtime: Path, process: str) -> Path:
    return runtime / f"{process}.next"


async def offer(path: Path, listeners: Mapping[str, socket.socket]) -> None:
    """Return when a successor has the listeners and serves. Raise `OSError` if nobody can come."""
    with _open_socket(path) as offering:
        while not await _serve(offering, listeners):
            log.warning("a successor did not get as far as to serve")


@contextmanager
def _open_socket(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as offering:
        path.unlink(missing_ok=True)
        offering.bind(str(path))
        offering.listen(1)
        offering.setblocking(False)
        try:
            yield offering
        finally:
            path.unlink(missing_ok=True)


async def _serve(offering: socket.socket, listeners: Mapping[str, socket.socket]) -> bool:
    """Whether one successor serves."""
    loop = asyncio.get_running_loop()
    connection, _ = await loop.sock_accept(offering)
    with connection:
        connection.setblocking(False)
        if _user_of(connection) != os.getuid():
            return False
        with suppress(OSError, TimeoutError):
            names = json.dumps(list(listeners)).encode()
            socket.send_fds(connection, [names], [listener.fileno() for listener in listeners.values()])
            async with asyncio.timeout(SERVE_S):
                return await loop.sock_recv(connection, MAX_BYTES) == SERVING
    return False


def _user_of(connection: socket.socket) -> int:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    return int(PEER.unpack(found)[1])


class Inheritance:
    """What a predecessor handed over: its listeners by name. `serving` asks it to leave; `close` does not."""

    def __init__(self, connection: socket.socket, listeners: dict[str, socket.socket]) -> None:
        self.listeners = listeners
        self._connection = connection

    def __repr__(self) -> str:
        return f"<Inheritance {list(self.listeners)}>"

    @classmethod
    def take(cls, path: Path) -> "Inheritance | None":
        """Take the listeners of a predecessor. None: there is no predecessor, or it does not answer."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(TAKE_S)
            connection.connect(str(path))
            text, descriptors, _, _ = socket.recv_fds(connection, MAX_BYTES, MAX_SOCKETS)
            sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
            listeners = dict(zip(json.loads(text), sockets, strict=True))
        except (OSError, ValueError) as error:
            connection.close()
            log.info("nobody hands over listeners", path=str(path), reason=str(error))
            return None
        for listener in listeners.values():
            listener.setblocking(False)
        return cls(connection, listeners)

    def serving(self) -> None:
        """Everybody who connects is served here: the predecessor need not accept any more."""
        with suppress(OSError):
            self._connection.sendall(SERVING)
        self._connection.close()

    def close(self) -> None:
        self._connection.close()
