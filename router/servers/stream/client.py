"""An HTTP/1.1 client for calls alone: what comes is handed on in the same turn of the event loop, without a task.

aiohttp's client, which asks servers how they are, takes a task and two wake-ups for each piece of an answer, and half
of what a call costs. This one knows only what calls need: POST with a body of known length, connections that are kept,
TLS. It follows no redirects, decodes no compression, keeps no cookies. Heads have a bound; bodies are bounded by
whoever takes them.
"""

import asyncio
import socket
import ssl
from collections import deque
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

import httptools

KEEP_S: Final = 4.0  # a connection that nobody uses: uvicorn closes it after five
MAX_HEAD: Final = 65_536  # bytes
TCP_KEEPALIVE: Final = (
    ("TCP_KEEPIDLE", 15),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
)  # a dead peer is noticed in 30 s


class Taker(Protocol):
    """Takes the answer to one call. After `end` or `broken` nothing more comes."""

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Take the head of the answer: it begins."""

    def data(self, data: bytes) -> None:
        """A piece of its body."""

    def end(self) -> None:
        """Note that the answer was whole."""

    def broken(self, reason: str) -> None:
        """It did not begin, or broke off."""


class CallClient:
    """The connections to one server. ``url``: without a path, or with the one that its paths begin with."""

    def __init__(
        self, url: str, headers: list[tuple[str, str]], certificates: ssl.SSLContext | None, connect_timeout_s: float
    ) -> None:
        """Make one. ``headers``: of each call. ``certificates``: for https."""
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._certificates = certificates if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        self._fixed = f" HTTP/1.1\r\nhost: {parts.netloc}\r\n".encode("latin-1") + _lines(headers)
        self._connect_timeout_s = connect_timeout_s
        self._idle: deque[_Connection] = deque()
        self._all: set[_Connection] = set()

    def __repr__(self) -> str:
        return f"<CallClient {self._host}:{self._port} {len(self._all)} connections, {len(self._idle)} idle>"

    def call(self, path: str, headers: list[tuple[str, str]], body: bytes, taker: Taker) -> "Ongoing":
        """Post a body."""
        head = b"".join((b"POST ", (self._path + path).encode("latin-1"), self._fixed, _lines(headers)))
        data = b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body)
        ongoing = Ongoing(self, data, taker)
        connection = self._take_idle()
        if connection is None:
            ongoing.connect()
        else:
            connection.ask(ongoing, is_reused=True)
        return ongoing

    def sweep(self) -> None:
        """Close what nobody has used for a while, and what does not end though all was said."""
        while self._idle and self._idle[0].is_old:
            self._idle.popleft().close()
        for connection in [one for one in self._all if one.lingers]:
            connection.close()

    def close(self) -> None:
        """Close all connections, busy or not."""
        for connection in tuple(self._all):
            connection.close()

    def _take_idle(self) -> "_Connection | None":
        """The one that was used last: the others may rest until they are swept."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed and not connection.is_old:
                return connection
            connection.close()
        return None

    async def connected(self) -> "_Connection":
        """Open a connection. Raise `OSError`, of which `TimeoutError` is one."""
        loop = asyncio.get_running_loop()
        name = self._host if self._certificates is not None else None
        async with asyncio.timeout(self._connect_timeout_s):
            _, protocol = await loop.create_connection(
                lambda: _Connection(self), self._host, self._port, ssl=self._certificates, server_hostname=name
            )
        return protocol

    def opened(self, connection: "_Connection") -> None:
        self._all.add(connection)

    def closed(self, connection: "_Connection") -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def released(self, connection: "_Connection") -> None:
        self._idle.append(connection)


class Ongoing:
    """One call on its way. `stop` it when nobody wants its answer."""

    __slots__ = ("_client", "_connecting", "connection", "data", "taker")

    def __init__(self, client: CallClient, data: bytes, taker: Taker) -> None:
        self._client = client
        self._connecting: asyncio.Task[None] | None = None
        self.connection: _Connection | None = None
        self.data = data
        self.taker: Taker | None = taker

    def connect(self) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            connection = await self._client.connected()
        except TimeoutError:
            self.break_off("it did not connect in time")
        except (OSError, ssl.SSLError) as error:
            self.break_off(f"it cannot be reached: {error.strerror or error}")
        else:
            connection.ask(self, is_reused=False)

    def break_off(self, reason: str) -> None:
        taker, self.taker = self.taker, None
        if taker is not None:
            taker.broken(reason)

    def done(self) -> None:
        """All was said. The connection is used again if its message ends soon."""
        if self.connection is not None:
            self.connection.is_done()

    def stop(self) -> None:
        """Close its connection, which cancels it at the server. Nothing more is heard of it."""
        self.taker = None
        if self._connecting is not None:
            self._connecting.cancel()
        if self.connection is not None:
            self.connection.close()


class _Connection(asyncio.Protocol):
    """One connection, for one call at a time. httptools calls the methods that begin with ``on_``."""

    def __init__(self, client: CallClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._ongoing: Ongoing | None = None
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []  # of the body, that came with what is being read
        self._num_head = 0  # bytes
        self._is_in_body = False
        self._is_over = False  # the message has ended
        self._has_begun = False
        self._is_reused = self._may_stay = False
        self._idle_since = 0.0
        self._done_at: float | None = None
        self.is_closed = False

    @property
    def is_old(self) -> bool:
        return self.is_closed or self._loop.time() - self._idle_since > KEEP_S

    @property
    def lingers(self) -> bool:
        return self._done_at is not None and self._loop.time() - self._done_at > KEEP_S

    def is_done(self) -> None:
        """Nobody waits for what may still come of the message."""
        self._done_at = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        made: socket.socket | None = transport.get_extra_info("socket")
        if made is not None and made.family in (socket.AF_INET, socket.AF_INET6):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for name, value in TCP_KEEPALIVE:
                if hasattr(socket, name):
                    made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._client.opened(self)

    def ask(self, ongoing: Ongoing, *, is_reused: bool) -> None:
        """Send a call."""
        assert self._transport is not None
        self._ongoing, ongoing.connection = ongoing, self
        self._has_begun, self._is_reused = False, is_reused
        self._transport.write(ongoing.data)

    def close(self) -> None:
        self.is_closed = True
        self._ongoing = None
        if self._transport is not None:
            self._transport.abort()

    # --- what comes ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._ongoing is None:
            self.close()  # nobody asked
            return
        self._has_begun = True
        if not self._is_in_body:
            self._num_head += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._break(f"it does not speak HTTP: {cause or error}"[:200])
            return
        if self._pieces:
            self._hand_on()
        if not self._is_in_body and self._num_head > MAX_HEAD:
            self._break(f"the head of its answer has more than {MAX_HEAD} bytes")
        elif self._is_over:
            self._finish()

    def _hand_on(self) -> None:
        """Pass on what came at once together: a server may write each event as a chunk of its own."""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._ongoing is not None and self._ongoing.taker is not None:
            self._ongoing.taker.data(data)

    def eof_received(self) -> bool:
        """Some servers end an answer by closing the connection."""
        has_length = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._ongoing is not None and self._is_in_body and not has_length:
            self._end()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._client.closed(self)
        ongoing, self._ongoing = self._ongoing, None
        if ongoing is None:
            return
        ongoing.connection = None
        if self._is_reused and not self._has_begun:
            ongoing.connect()  # it was closed while nobody used it: another one may do
        else:
            ongoing.break_off("the server closed the connection in the middle of its answer")

    def _break(self, reason: str) -> None:
        ongoing = self._ongoing
        self.close()
        if ongoing is not None:
            ongoing.break_off(reason)

    def _finish(self) -> None:
        """The answer is whole: let others use the connection."""
        self._end()
        if self.is_closed:
            return
        if not self._may_stay:
            self.close()
            return
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._num_head, self._is_in_body, self._is_over = {}, 0, False, False
        self._idle_since, self._done_at = self._loop.time(), None
        self._client.released(self)

    def _end(self) -> None:
        ongoing, self._ongoing = self._ongoing, None
        if ongoing is not None and ongoing.taker is not None:
            taker, ongoing.taker, ongoing.connection = ongoing.taker, None, None
            taker.end()

    # --- the parser ---------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._ongoing is not None and self._ongoing.taker is not None:
            self._is_in_body = True
            self._ongoing.taker.head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self._is_in_body:
            self._is_over, self._may_stay = True, self._parser.should_keep_alive()
        else:
            self._headers = {}  # of a word in between, such as 100


def _lines(headers: list[tuple[str, str]]) -> bytes:
    return "".join([f"{name}: {value}\r\n" for name, value in headers]).encode("latin-1")
