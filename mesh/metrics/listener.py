"""Answers ``GET /metrics`` for a process that has no HTTP otherwise: few connections, small heads, short deadlines.

A connection gets one answer. Numbers are read in the event loop, at one moment; their text is made beside it.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Final

import h11
import structlog
from prometheus_client.core import Metric

from mesh.metrics.exposition import written

PATH: Final = "/metrics"
MAX_HEAD: Final = 16 << 10  # bytes of a request
MAX_CONNECTIONS: Final = 8  # at a time; one more is closed at once
DEADLINE_S: Final = 10.0  # of a connection
BACKLOG: Final = 16
_READ: Final = 4096

log = structlog.get_logger()

Read = Callable[[], Iterable[Metric]]
MayRead = Callable[[str], bool]  # by the ``Authorization`` that was sent; called in a thread


def listen(address: str, port: int) -> socket.socket:
    """A listening socket; port 0: any that is free. Raise `OSError` if it cannot be had."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


class MetricsListener:
    """Serves what ``read`` returns at ``/metrics``. ``may_read``: who may have it; None: everybody."""

    def __init__(self, listener: socket.socket, read: Read, may_read: MayRead | None = None) -> None:
        self._listener = listener
        self._read = read
        self._may_read = may_read
        self._num_open = 0

    def __repr__(self) -> str:
        return f"<MetricsListener with {self._num_open} connections>"

    async def run(self) -> None:
        """Serve and never return; cancel it."""
        server = await asyncio.start_server(self._take, sock=self._listener, limit=MAX_HEAD)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._num_open >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._num_open += 1
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._answer(reader, writer)
            writer.close()
        except (OSError, TimeoutError):
            writer.transport.abort()
        except Exception:
            log.exception("metrics could not be told")
            writer.transport.abort()
        finally:
            self._num_open -= 1

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        try:
            request = await _request(connection, reader)
        except h11.RemoteProtocolError as error:
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await _send(connection, writer, error.error_status_hint, b"not HTTP that is understood here\n")
            return
        if request is not None:
            await self._respond(connection, writer, request)

    async def _respond(self, connection: h11.Connection, writer: asyncio.StreamWriter, request: h11.Request) -> None:
        headers = {name: value.decode("latin-1") for name, value in request.headers}
        if request.target.partition(b"?")[0] != PATH.encode():
            await _send(connection, writer, 404, f"this is {PATH} only\n".encode())
        elif request.method != b"GET":
            await _send(connection, writer, 405, b"use GET\n", allow="GET")
        elif not await self._is_allowed(headers.get(b"authorization", "")):
            text = b"show the key of an operator: authorization: Bearer ms-...\n"
            await _send(connection, writer, 401, text, www_authenticate="Bearer")
        else:
            metrics = list(self._read())
            body, kind = await asyncio.to_thread(written, metrics, headers.get(b"accept", ""))
            await _send(connection, writer, 200, body, content_type=kind)

    async def _is_allowed(self, authorization: str) -> bool:
        return self._may_read is None or await asyncio.to_thread(self._may_read, authorization)


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The head of a request; None: the other side went away. What follows it is not read."""
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_READ))
    return event if isinstance(event, h11.Request) else None


async def _send(
    connection: h11.Connection,
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    content_type: str = "text/plain; charset=utf-8",
    **more: str,
) -> None:
    told = {"content-type": content_type, "content-length": str(len(body)), "connection": "close"}
    headers = [*told.items(), *((name.replace("_", "-"), value) for name, value in more.items())]
    for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
        writer.write(connection.send(event) or b"")
    await writer.drain()
