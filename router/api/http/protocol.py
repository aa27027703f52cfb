"""HTTP/1.1 of uvicorn with bounds: how large a head may be, how slow a client, how many requests wait (decision 18)."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from router.api.errors import ApiError
from router.api.http.callers import UNKNOWN, ClientPeers, peer_of_address
from router.api.http.connections import (
    CHUNK_BYTES,
    MAX_CHUNKS,
    MAX_FIELDS,
    MAX_FRAMING_BYTES,
    MAX_HEAD_BYTES,
    MAX_PIPELINED,
    MAX_URL_BYTES,
    Connection,
    ConnectionPhase,
    Connections,
)
from router.api.http.response_cycle import HeadFirstCycle


class _RefusedError(Exception):
    """Raised in a callback of the parser, which then stops."""


class _Outgoing:
    """The transport of one answer. Where a request has not been read to its end, closing it takes its time."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `look` at it now and then: it closes itself when its client takes too long."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections,
        peers: ClientPeers,
        connection: Connection | None = None,
    ) -> None:
        """Make the protocol of one connection. ``connection``: what ``connections`` counts already of it; None: it is
        counted when it is made.
        """
        super().__init__(config, server_state, app_state, _loop)
        self._connections = connections
        self._peers = peers
        self._is_counted = connection is not None
        self._connection = connection or Connection(UNKNOWN, self.loop.time())
        self._refusal: ApiError | None = None
        self._answering: RequestResponseCycle | None = None  # the request whose turn it is; `cycle` came last
        self._head_bytes = 0
        self._framing_bytes = 0
        self._num_chunks = 0
        self._num_hosts = 0

    # --- the transport ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection.close = transport.close
        if not self._is_counted:
            self._count(transport)

    def _count(self, transport: asyncio.Transport) -> None:
        address = self.client[0] if self.client else UNKNOWN
        self._connection.peer = peer_of_address(address)
        leaves = self._connections.add(self._connection, is_proxy=self._peers.trusts(address))
        if leaves is self._connection:
            transport.write(_answer(ApiError(503, "Too many connections", code="too_many_connections")))
            transport.close()
        elif leaves is not None:
            leaves.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self._connection)
        self.pipeline.clear()
        self._abandon()
        super().connection_lost(exc)

    def _abandon(self) -> None:
        """Tell the handler of the request whose turn it is that nobody waits."""
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.waiting_for_100_continue = False
            cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        connection = self._connection
        if connection.phase is ConnectionPhase.LEAVING:
            connection.num_bytes += len(data)
            return
        if connection.phase is ConnectionPhase.IDLE:
            self._enter(ConnectionPhase.HEAD)
        cycle, phase, num_bytes = self.cycle, connection.phase, connection.num_bytes
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # no other protocol is spoken here: the request is answered as any, and what follows it is not read
        except httptools.HttpParserError:
            self._refuse(self._refusal or ApiError(400, "This is no HTTP request", code="bad_http"))
            return
        if connection.phase is ConnectionPhase.HEAD:
            self._count_head(len(data))
        elif connection.phase is phase and self.cycle is cycle:
            self._count_framing(len(data) - (connection.num_bytes - num_bytes))

    def _count_framing(self, num_bytes: int) -> None:
        """Of what is no part of a body: nothing is kept of it, but it would cost time without end."""
        self._framing_bytes += num_bytes
        if self._framing_bytes > MAX_FRAMING_BYTES + self._connection.num_bytes:
            self._refuse(_too_much_framing())

    def _count_head(self, num_bytes: int) -> None:
        """Of a head that is not complete. What the parser keeps of a name or a value it has not told us of yet."""
        self._head_bytes += num_bytes
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(_uri_too_long() if not self.headers and not self.url else _head_too_large())

    # --- the parser ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._connection.phase is not ConnectionPhase.HEAD:
            self._enter(ConnectionPhase.HEAD)
        self._head_bytes = self._size = self._framing_bytes = self._num_chunks = self._num_hosts = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > MAX_URL_BYTES:
            self._stop(_uri_too_long())

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        if self._size > MAX_HEAD_BYTES or len(self.headers) >= MAX_FIELDS:
            self._stop(_head_too_large())
        if self._connection.phase is ConnectionPhase.BODY:
            return  # a trailer is no header: what a proxy has checked or set is what came first
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"host":
            self._num_hosts += 1
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            self._stop(ApiError(501, "Transfer-encodings other than chunked are not supported", code="bad_http"))
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            self._stop(ApiError(400, f"More than {MAX_PIPELINED} requests wait for answers", code="bad_http"))
        if self._num_hosts > 1 or (not self._num_hosts and self.parser.get_http_version() != "1.0"):
            self._stop(ApiError(400, "A request needs one host header", code="bad_http"))
        self._enter(ConnectionPhase.BODY)
        self._complete_scope()
        before, self.cycle = self.cycle, self._cycle()
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _complete_scope(self) -> None:
        url, parser = httptools.parse_url(self.url), self.parser
        path = url.path.decode("ascii")
        self.scope["method"] = parser.get_method().decode("ascii")
        self.scope["http_version"] = parser.get_http_version()
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"], self.scope["query_string"] = url.path, url.query or b""

    def _cycle(self) -> HeadFirstCycle:
        return HeadFirstCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=self.scope["http_version"] != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )

    def on_chunk_header(self) -> None:
        self._num_chunks += 1
        if self._num_chunks > MAX_CHUNKS + self._connection.num_bytes // CHUNK_BYTES:
            self._stop(_too_much_framing())

    def on_body(self, body: bytes) -> None:
        self._connection.num_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._enter(ConnectionPhase.IDLE if self.cycle.response_complete else ConnectionPhase.ANSWER)
        super().on_message_complete()

    # --- answers ------------------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        cycle.transport = _Outgoing(self.transport, self._end)  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Do as uvicorn's does, without a timer: `look` sees how long a connection is idle."""
        self.server_state.total_requests += 1
        connection = self._connection
        if self.transport.is_closing() or connection.phase is ConnectionPhase.LEAVING:
            return
        self.flow.resume_reading()
        if self.pipeline:
            connection.since = self.loop.time()  # what comes after it was not read until now
            self._start_asgi_task(*self.pipeline.pop())
        elif connection.phase is ConnectionPhase.BODY:
            connection.answered_at = self.loop.time()
        elif connection.phase is ConnectionPhase.ANSWER:
            self._enter(ConnectionPhase.IDLE)

    def _end(self) -> None:
        """An answer was the last of its connection."""
        if self._connection.phase is ConnectionPhase.BODY:
            self._leave()
        else:
            self.transport.close()

    def _enter(self, phase: ConnectionPhase) -> None:
        self._connections.enter(self._connection, phase, self.loop.time())

    def _stop(self, refusal: ApiError) -> None:
        self._refusal = refusal
        raise _RefusedError

    # --- limits -------------------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Close the connection if its client takes too long. ``now`` is the loop's time."""
        if self._connection.stalls(self.transport.get_write_buffer_size(), not self._adds(), now):
            self._connections.refused["does not read"] += 1
            self.transport.abort()
        elif not self.transport.is_closing() and not self.pipeline and (reason := self._connection.overdue(now)):
            if self._connection.phase in (ConnectionPhase.IDLE, ConnectionPhase.LEAVING):
                self._connections.refused[reason] += 1
                self.transport.close()
            else:
                self._refuse(ApiError(408, f"Too slow: {reason}", code="too_slow"))

    def _adds(self) -> bool:
        """Whether an answer that has begun goes on: what waits to leave then grows as well."""
        cycle = self._answering
        return cycle is not None and cycle.response_started and not cycle.response_complete

    def _refuse(self, error: ApiError) -> None:
        """Answer if no answer is on its way, and let the connection end."""
        self._connections.refused[error.code or ""] += 1
        if self.transport.is_closing():
            return
        if self._adds():
            self.transport.close()
            return
        self._abandon()
        self.transport.write(_answer(error))
        self._leave()

    def _leave(self) -> None:
        """Say that nothing more comes. Were the rest of what was sent not read, the client would not see the answer."""
        self.pipeline.clear()
        self.flow.resume_reading()
        self._enter(ConnectionPhase.LEAVING)
        if self.transport.can_write_eof():
            with contextlib.suppress(OSError):  # the client is gone
                self.transport.write_eof()


def _uri_too_long() -> ApiError:
    return ApiError(414, f"The path of a request can have at most {MAX_URL_BYTES} bytes", code="uri_too_long")


def _head_too_large() -> ApiError:
    message = f"A request can have at most {MAX_FIELDS} header fields and {MAX_HEAD_BYTES} bytes of headers"
    return ApiError(431, message, code="headers_too_large")


def _too_much_framing() -> ApiError:
    return ApiError(400, "The body comes in too many pieces for what it holds", code="bad_http")


def _answer(error: ApiError) -> bytes:
    body = error.body()
    head = (
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-request-id: {secrets.token_hex(16)}\r\nconnection: close\r\n\r\n"
    )
    return STATUS_LINE[error.status] + head.encode() + body
