"""GET over plain HTTP/1.1, as a stream: sockets of asyncio, and h11 for the protocol.

httpx would do, and other commands use it. Its first request takes 0.15 s of CPU, most of it for imports, where h11's
takes 0.01 s; ``mesh top`` should be there at once.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import h11
import msgspec

TIMEOUT_S: Final = 5.0  # to connect, to send, and for the head of the answer
READ_BYTES: Final = 65_536
MOST_ERROR_BYTES: Final = 65_536


class GetError(Exception):
    """There is no answer, or not the one that was asked for. Its text says why, in one line."""


class HttpAnswer:
    """An answer of status 200 that is being read."""

    def __init__(self, reader: asyncio.StreamReader, connection: h11.Connection) -> None:
        self._reader = reader
        self._connection = connection

    async def pieces(self, silence_s: float) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raise `GetError` if nothing comes for so long, or it breaks off."""
        while True:
            async with _deadline(silence_s, "says nothing"):
                event = await self.event()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    async def body(self, most: int) -> bytes:
        """Return the whole body. Raise `GetError` if it is longer, or does not come."""
        body = bytearray()
        async with _deadline(TIMEOUT_S, "does not finish its answer"):
            while not isinstance(event := await self.event(), h11.EndOfMessage):
                body += event.data if isinstance(event, h11.Data) else b""
                if len(body) > most:
                    raise GetError("its answer is too long")
        return bytes(body)

    async def event(self) -> h11.Event:
        """Return what comes next. Raise `GetError` if it is no HTTP, or nothing comes any more."""
        try:
            while (event := self._connection.next_event()) is h11.NEED_DATA:
                self._connection.receive_data(await self._reader.read(READ_BYTES))
        except h11.RemoteProtocolError as error:
            raise GetError(f"does not speak HTTP ({error})") from None
        except OSError as error:
            raise GetError(f"broke off ({_reason(error)})") from None
        if not isinstance(event, h11.Response | h11.InformationalResponse | h11.Data | h11.EndOfMessage):
            raise GetError("closed the connection")
        return event


@asynccontextmanager
async def get(url: str, headers: Mapping[str, str]) -> AsyncIterator[HttpAnswer]:
    """Ask for a URL. Raise `GetError` if there is no answer, or a status other than 200."""
    reader, writer = await _connected(url)
    try:
        connection = h11.Connection(h11.CLIENT)
        writer.write(_request(connection, url, headers))
        answer = HttpAnswer(reader, connection)
        async with _deadline(TIMEOUT_S, "does not answer"):
            while not isinstance(response := await answer.event(), h11.Response):
                pass
        if response.status_code != 200:
            raise GetError(await _refusal(answer, response.status_code))
        yield answer
    finally:
        writer.close()


async def _connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        parts = urlsplit(url)
        async with _deadline(TIMEOUT_S, "does not answer"):
            return await asyncio.open_connection(parts.hostname, parts.port or 80, limit=READ_BYTES)
    except OSError as error:
        raise GetError(f"cannot be reached ({_reason(error)})") from None
    except ValueError:
        raise GetError("has no address that can be read") from None


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__


def _request(connection: h11.Connection, url: str, headers: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    request = h11.Request(method="GET", target=parts.path, headers=[("host", parts.netloc), *headers.items()])
    return connection.send(request) + (connection.send(h11.EndOfMessage()) or b"")


async def _refusal(answer: HttpAnswer, status: int) -> str:
    """What a gateway says of itself when it refuses, else the status."""
    body = await answer.body(MOST_ERROR_BYTES)
    try:
        message = msgspec.json.decode(body)["error"]["message"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        return f"answers with status {status}"
    return f"{message} (status {status})"


@asynccontextmanager
async def _deadline(seconds: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise GetError(f"{what} for {seconds:.0f} s") from None
