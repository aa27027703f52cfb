"""Accepts connections that speak TLS: each counts as a connection before its handshake begins."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from router.api.http.callers import UNKNOWN, ClientPeers, peer_of_address
from router.api.http.connections import Connection, Connections

HANDSHAKE_S: Final = 10.0
RETRY_S: Final = 0.5  # after the system could not give the process one more connection
ACCEPTED_PER_TURN: Final = 100
NO_MORE_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = structlog.get_logger()

Make = Callable[[Connection], asyncio.Protocol]


class TlsListener:
    """Accepts from the moment that it is made until `close`, which closes the listening socket, too.

    A handshake counts as an idle connection of its peer, and is closed for a newer one like any that is idle.
    """

    def __init__(
        self, listener: socket.socket, context: ssl.SSLContext, connections: Connections, peers: ClientPeers, make: Make
    ) -> None:
        """Listen for TLS. ``make``: the protocol of a connection that is counted already. Make this in a
        running loop.
        """
        self._listener = listener
        self._context = context
        self._connections = connections
        self._peers = peers
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._watch()

    def close(self) -> None:
        """Accept no more. Handshakes that have begun go on."""
        if self._retry is not None:
            self._retry.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
        self._listener.close()

    async def wait_closed(self) -> None:
        """Break off the handshakes that still go on, and return when none is left."""
        for handshake in self._handshakes:
            handshake.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _watch(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                client, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_MORE_ROOM:
                    raise
                self._pause(error)
                return
            self._begin(client, address[0] if isinstance(address, tuple) else UNKNOWN)

    def _pause(self, error: OSError) -> None:
        """The system has no room: asking it again at once would only take time from those who are served."""
        log.error("could not accept a connection", reason=error.strerror)
        self._loop.remove_reader(self._listener)
        self._retry = self._loop.call_later(RETRY_S, self._watch)

    def _begin(self, client: socket.socket, address: str) -> None:
        connection = Connection(peer_of_address(address), self._loop.time())
        leaves = self._connections.add(connection, is_proxy=self._peers.trusts(address))
        if leaves is not None:
            leaves.close()
        if leaves is connection:
            client.close()
            return
        handshake = self._loop.create_task(self._shake_hands(client, connection))
        connection.close = partial(_break_off, handshake)
        self._handshakes.add(handshake)
        handshake.add_done_callback(partial(self._ended, client, connection))

    async def _shake_hands(self, client: socket.socket, connection: Connection) -> None:
        await self._loop.connect_accepted_socket(
            partial(self._make, connection), client, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S
        )

    def _ended(self, client: socket.socket, connection: Connection, handshake: asyncio.Task[None]) -> None:
        """If it ended well, the protocol has taken the connection over."""
        self._handshakes.discard(handshake)
        if handshake.cancelled() or handshake.exception() is not None:
            self._connections.remove(connection)
            client.close()


def _break_off(handshake: asyncio.Task[None]) -> None:
    handshake.cancel()
