"""HTTP/1.1 of uvicorn with bounds: how large a head may be, how slow a client, how many requests wait (decision 18)."""

import asyncio
import secrets
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from router.api.callers import UNKNOWN, Peers, peer_of_address
from router.api.connections import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    MAX_PIPELINED,
    MAX_URL_BYTES,
    Connection,
    Connections,
    Phase,
)
from router.api.errors import ApiError


class _RefusedError(Exception):
    """Raised in a callback of the parser, which then stops."""


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
        peers: Peers,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._connections = connections
        self._peers = peers
        self._connection = Connection(UNKNOWN, self.loop.time())
        self._refusal: ApiError | None = None
        self._head_bytes = 0

    # --- the transport ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else UNKNOWN
        self._connection.peer = peer_of_address(address)
        leaves = self._connections.add(self._connection, is_proxy=self._peers.trusts(address))
        if leaves is self._connection:
            transport.write(_answer(ApiError(503, "Too many connections", code="too_many_connections")))
            transport.close()
        elif leaves is not None:
            _close(self.connections, leaves)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self._connection)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        connection = self._connection
        if connection.phase is Phase.LEAVING:
            connection.num_bytes += len(data)
            return
        if connection.phase is Phase.IDLE:
            connection.enter(Phase.HEAD, self.loop.time())
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # no other protocol is spoken here: the request is answered as any, and what follows it is not read
        except httptools.HttpParserError:
            self._refuse(self._refusal or ApiError(400, "This is no HTTP request", code="bad_http"))
            return
        if connection.phase is Phase.HEAD:
            self._count_head(len(data))

    def _count_head(self, num_bytes: int) -> None:
        """Of a head that is not complete. What the parser keeps of a name or a value it has not told us of yet."""
        self._head_bytes += num_bytes
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(_uri_too_long() if not self.headers and not self.url else _head_too_large())

    # --- the parser ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._connection.enter(Phase.HEAD, self.loop.time())
        self._head_bytes = self._size = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > MAX_URL_BYTES:
            self._stop(_uri_too_long())

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        if self._size > MAX_HEAD_BYTES or len(self.headers) >= MAX_FIELDS:
            self._stop(_head_too_large())
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            self._stop(ApiError(501, "Transfer-encodings other than chunked are not supported", code="bad_http"))
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            self._stop(ApiError(400, f"More than {MAX_PIPELINED} requests wait for answers", code="bad_http"))
        self._connection.enter(Phase.BODY, self.loop.time())
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._connection.num_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        is_answered = self.cycle.response_complete
        self._connection.enter(Phase.IDLE if is_answered else Phase.ANSWER, self.loop.time())
        super().on_message_complete()

    def on_response_complete(self) -> None:
        connection = self._connection
        if connection.phase is Phase.BODY:
            connection.answered_at = self.loop.time()
        elif connection.phase is Phase.ANSWER and not self.pipeline:
            connection.enter(Phase.IDLE, self.loop.time())
        super().on_response_complete()

    def _stop(self, refusal: ApiError) -> None:
        self._refusal = refusal
        raise _RefusedError

    # --- limits -------------------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Close the connection if its client takes too long. ``now`` is the loop's time."""
        is_complete = self.cycle is None or self.cycle.response_complete
        if self._connection.stalls(self.transport.get_write_buffer_size(), is_complete, now):
            self._connections.refused["does not read"] += 1
            self.transport.abort()
        elif not self.transport.is_closing() and (reason := self._connection.overdue(now)):
            if self._connection.phase in (Phase.IDLE, Phase.LEAVING):
                self._connections.refused[reason] += 1
                self.transport.close()
            else:
                self._refuse(ApiError(408, f"Too slow: {reason}", code="too_slow"))

    def give_way(self, connection: Connection) -> bool:
        """Close it if it is this one."""
        if self._connection is not connection:
            return False
        self.transport.close()
        return True

    def _refuse(self, error: ApiError) -> None:
        """Answer if no answer is on its way, and let the connection end."""
        self._connections.refused[error.code or ""] += 1
        cycle = self.cycle
        if self.transport.is_closing():
            return
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()
            return
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # its handler hears that nobody waits
            cycle.message_event.set()
        self.transport.write(_answer(error))
        self._leave()

    def _leave(self) -> None:
        """Say that nothing more comes. Were the rest of what was sent not read, the client would not see the answer."""
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self._connection.enter(Phase.LEAVING, self.loop.time())
        self.pipeline.clear()
        self.flow.resume_reading()


def _close(connections: "set[Any]", connection: Connection) -> None:
    for protocol in connections:
        if isinstance(protocol, BoundedProtocol) and protocol.give_way(connection):
            return


def _uri_too_long() -> ApiError:
    return ApiError(414, f"The path of a request can have at most {MAX_URL_BYTES} bytes", code="uri_too_long")


def _head_too_large() -> ApiError:
    message = f"A request can have at most {MAX_FIELDS} header fields and {MAX_HEAD_BYTES} bytes of headers"
    return ApiError(431, message, code="headers_too_large")


def _answer(error: ApiError) -> bytes:
    body = error.body()
    head = (
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-request-id: {secrets.token_hex(16)}\r\nconnection: close\r\n\r\n"
    )
    return STATUS_LINE[error.status] + head.encode() + body
