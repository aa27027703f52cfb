"""A small HTTP/1.1 client for streams: one callback a read, connections kept alive. Costs some microseconds a token."""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools
import msgspec

from mesh.errors import UserError

CONNECT_S = 10.0
PORTS = {"http": 80, "https": 443}


class HttpError(Exception):
    """An exchange that came to no end."""


class ConnectError(HttpError):
    """Nobody listens there, or not in time."""


class LostError(HttpError):
    """The connection broke. ``has_begun``: something of the answer was here."""

    def __init__(self, message: str, *, has_begun: bool) -> None:
        super().__init__(message)
        self.has_begun = has_begun


class Receiver(Protocol):
    """Takes one response. Must not raise."""

    def head(self, status: int, headers: dict[str, str]) -> None: ...

    def body(self, data: bytes, now: float) -> None: ...

    def end(self, now: float) -> None: ...


class Address(msgspec.Struct, frozen=True):
    """Where a server is. ``prefix`` comes before every path."""

    host: str
    port: int
    prefix: str = ""
    is_tls: bool = False
    is_verified: bool = True

    @classmethod
    def parse(cls, url: str, *, is_verified: bool = True) -> "Address":
        """Of a base URL, with ``/v1`` at its end or without. Raise `UserError`."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in PORTS or not parts.hostname or port == -1 or parts.query or parts.fragment:
            raise UserError(f"--url: {url!r} is no base URL; write it like http://127.0.0.1:8000")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        port = PORTS[parts.scheme] if port is None else port
        return cls(parts.hostname, port, prefix, parts.scheme == "https", is_verified)

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS["https" if self.is_tls else "http"] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.authority}{self.prefix}"

    def context(self) -> ssl.SSLContext | None:
        if not self.is_tls:
            return None
        context = ssl.create_default_context()
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class HttpClient:
    """Exchanges side by side, each on a connection of its own; one that ended well serves the next."""

    def __init__(
        self, address: Address, headers: Mapping[str, str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = address
        self._headers = {"host": address.authority, "accept": "*/*", **(headers or {})}
        self._clock = clock
        self._context = address.context()
        self._idle: list[_Connection] = []

    async def request(
        self, method: str, path: str, body: bytes, receiver: Receiver, headers: Mapping[str, str] | None = None
    ) -> None:
        """Return when the response is whole. Raise `HttpError`. A kept connection that turns out dead is no error."""
        data = self._head(method, path, body, headers or {}) + body
        while (kept := self._kept()) is not None:
            try:
                return await self._exchange(kept, data, receiver)
            except LostError as error:
                if error.has_begun:
                    raise
        return await self._exchange(await self._connect(), data, receiver)

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        for connection in idle:
            await connection.closed()

    def _kept(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _exchange(self, connection: "_Connection", data: bytes, receiver: Receiver) -> None:
        try:
            await connection.exchange(data, receiver)
        except BaseException:
            connection.abort()
            raise
        if connection.is_open:
            self._idle.append(connection)

    async def _connect(self) -> "_Connection":
        address, loop = self._address, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._clock), address.host, address.port, ssl=self._context
                )
        except TimeoutError:
            raise ConnectError(f"no connection within {CONNECT_S:g} s") from None
        except ConnectionError as error:
            raise ConnectError(os.strerror(error.errno) if error.errno else str(error)) from None
        except OSError as error:
            raise ConnectError(error.strerror or str(error)) from None
        return connection

    def _head(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        lines = [f"{method} {self._address.prefix}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in {**self._headers, **headers}.items()]
        if body:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class _Connection(asyncio.Protocol):
    """One exchange at a time. httptools calls the methods that begin with ``on_``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._lost = asyncio.get_running_loop().create_future()
        self._parser: httptools.HttpResponseParser | None = None
        self._receiver: Receiver | None = None
        self._done: asyncio.Future[None] | None = None
        self._headers: dict[str, str] = {}
        self._now = 0.0
        self._has_begun = False
        self._has_head = False
        self._keeps_alive = False

    @property
    def is_open(self) -> bool:
        transport = self._transport
        return transport is not None and not transport.is_closing() and self._done is None and self._keeps_alive

    def exchange(self, data: bytes, receiver: Receiver) -> asyncio.Future[None]:
        assert self._transport is not None
        self._parser, self._receiver = httptools.HttpResponseParser(self), receiver
        self._headers, self._has_begun, self._has_head, self._keeps_alive = {}, False, False, False
        self._done = done = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return done

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._done = None
        if self._transport is not None:
            self._transport.abort()

    async def closed(self) -> None:
        await self._lost

    # --- what asyncio calls -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._now = self._clock()
        if self._done is None or self._parser is None:
            self.abort()  # nothing was asked
            return
        self._has_begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the answer is not HTTP: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(None)
        if self._done is None:
            return
        self._now = self._clock()
        is_framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if error is None and self._has_head and not is_framed:
            self.on_message_complete()  # such a body ends with its connection
        else:
            self._fail(f"the connection broke: {error}" if error else "the server closed the connection")

    # --- what httptools calls -----------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._has_head = True
        if self._parser is not None and self._receiver is not None:
            self._receiver.head(self._parser.get_status_code(), self._headers)

    def on_body(self, body: bytes) -> None:
        if self._receiver is not None:
            self._receiver.body(body, self._now)

    def on_message_complete(self) -> None:
        done, receiver = self._done, self._receiver
        if done is None or receiver is None or self._parser is None:
            return
        self._keeps_alive = bool(self._parser.should_keep_alive())
        receiver.end(self._now)
        self._done = self._receiver = None
        if not self._keeps_alive:
            self.close()
        if not done.done():
            done.set_result(None)

    def _fail(self, message: str) -> None:
        done, self._done, self._receiver = self._done, None, None
        self.close()
        if done is not None and not done.done():
            done.set_exception(LostError(message, has_begun=self._has_begun))
