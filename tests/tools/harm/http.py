"""HTTP as attackers and impatient clients speak it: any bytes, from any loopback address, at any pace."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

READ_BYTES = 2**16
MOST_BYTES = 64 * 2**20  # of one answer that is read
HERE = "127.0.0.1"
BROKEN = (OSError, EOFError, asyncio.LimitOverrunError, ValueError, IndexError)  # what breaks the reading of an answer


@dataclass(slots=True)
class Reply:
    """What came back. ``status`` None: nothing. ``is_closed``: the other end closed before the reply was whole."""

    status: int | None = None
    body: bytes = b""
    is_closed: bool = False
    is_late: bool = False


def request(port: int, path: str, body: bytes, headers: Mapping[str, str] | None = None, method: str = "POST") -> bytes:
    """A proper one, which asks for the connection to be closed."""
    fields = {
        "host": f"{HERE}:{port}",
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        **(headers or {}),
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> bool:
        """False: the other end has closed."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            return False
        return not self._reader.at_eof()

    def half_close(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    async def head(self) -> tuple[int, dict[str, str]]:
        """The status and the fields of an answer. Raise one of `BROKEN`."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split(" ", 2)[1])
        if status == 100:
            return await self.head()
        pairs = (line.partition(":") for line in head.splitlines()[1:])
        return status, {name.strip().lower(): value.strip() for name, _, value in pairs if name.strip()}

    async def line(self) -> bytes:
        """The next line of a body; empty at its end. Raise one of `BROKEN`."""
        return await self._reader.readline()

    async def read(self, patience_s: float) -> Reply:
        """One reply, whole or as much of it as comes."""
        reply = Reply()
        try:
            async with asyncio.timeout(patience_s):
                reply.status, fields = await self.head()
                async for part in self.body(fields):
                    reply.body += part
        except TimeoutError:
            reply.is_late = True
        except BROKEN:
            reply.is_closed = True
        return reply

    async def body(self, fields: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Parts of the body after a head with these fields. Raise one of `BROKEN`."""
        if "content-length" in fields:
            left = min(int(fields["content-length"]), MOST_BYTES)
            while left:
                part = await self._reader.read(min(READ_BYTES, left))
                if not part:
                    raise ConnectionResetError("it ended before the answer did")
                yield part
                left -= len(part)
        elif fields.get("transfer-encoding") == "chunked":
            while size := int((await self._reader.readline()).split(b";")[0], 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
        else:
            yield await self._reader.read(MOST_BYTES)

    async def closes(self, patience_s: float) -> bool:
        """Whether the other end closes in time, whatever it says before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                with suppress(OSError):
                    while await self._reader.read(READ_BYTES):
                        pass
                return True
        return False

    def close(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def line(port: int, source: str = HERE, *, receive_bytes: int | None = None) -> AsyncIterator[Line]:
    """A connection from that address. Raise `OSError` if it is refused."""
    made = socket.socket()
    try:
        if receive_bytes is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.setblocking(False)
        made.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(made, (HERE, port))
    except BaseException:
        made.close()
        raise
    opened = Line(*await asyncio.open_connection(sock=made, limit=receive_bytes or READ_BYTES))
    try:
        yield opened
    finally:
        opened.close()


async def exchange(port: int, data: bytes, patience_s: float, source: str = HERE) -> Reply:
    """Send all and read one reply, at once: an answer may come before all is sent."""
    deadline = time.monotonic() + patience_s
    try:
        async with line(port, source) as opened:
            sending = asyncio.create_task(opened.send(data))
            try:
                return await opened.read(deadline - time.monotonic())
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
    except OSError:
        return Reply(is_closed=True)


async def fetch(port: int, path: str, patience_s: float = 5.0) -> object:
    """The JSON that a server answers; None if it does not."""
    reply = await exchange(port, request(port, path, b"", method="GET"), patience_s)
    with suppress(ValueError):
        return json.loads(reply.body)
    return None
