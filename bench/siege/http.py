"""HTTP as attackers speak it: any bytes, from any loopback address, at any pace."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

READ_BYTES = 2**16
MOST_BYTES = 64 * 2**20  # of one answer that is read
GREETING = b"POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"


@dataclass(slots=True)
class Reply:
    """What came back. ``status`` None: nothing. ``is_closed``: the other end closed before the reply was whole."""

    status: int | None = None
    body: bytes = b""
    is_closed: bool = False
    is_late: bool = False

    def json(self) -> object:
        """None: it is not JSON."""
        with suppress(ValueError):
            return json.loads(self.body)
        return None


def request(port: int, path: str, body: bytes, headers: Mapping[str, str] | None = None, method: str = "POST") -> bytes:
    """A proper one, which asks for the connection to be closed."""
    fields = {
        "host": f"127.0.0.1:{port}",
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

    async def read(self, patience_s: float) -> Reply:
        """One reply, whole or as much of it as comes."""
        reply = Reply()
        try:
            async with asyncio.timeout(patience_s):
                await self._read_into(reply)
        except TimeoutError:
            reply.is_late = True
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError):
            reply.is_closed = True
        return reply

    async def _read_into(self, reply: Reply) -> None:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split(" ", 2)[1])
        if status == 100:
            return await self._read_into(reply)
        reply.status = status
        fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        if "content-length" in fields:
            await self._read_exactly(reply, int(fields["content-length"]))
        elif fields.get("transfer-encoding") == "chunked":
            await self._read_chunks(reply)
        else:
            reply.body = await self._reader.read(MOST_BYTES)
        return None

    async def _read_exactly(self, reply: Reply, size: int) -> None:
        while size and len(reply.body) < MOST_BYTES:
            part = await self._reader.read(min(READ_BYTES, size))
            if not part:
                raise ConnectionResetError("it ended before the answer did")
            reply.body += part
            size -= len(part)

    async def _read_chunks(self, reply: Reply) -> None:
        while len(reply.body) < MOST_BYTES:
            size = int((await self._reader.readline()).split(b";")[0], 16)
            reply.body += (await self._reader.readexactly(size + 2))[:-2]
            if size == 0:
                return

    async def closes(self, patience_s: float) -> bool:
        """Whether the other end closes in time, whatever it says before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                try:
                    while await self._reader.read(READ_BYTES):
                        pass
                except OSError:
                    pass
                return True
        return False

    def close(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def line(port: int, source: str, *, receive_bytes: int | None = None) -> AsyncIterator[Line]:
    """A connection from that address. Raise `OSError` if it is refused."""
    made = socket.socket()
    try:
        if receive_bytes is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.setblocking(False)
        made.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    except BaseException:
        made.close()
        raise
    limit = 2**10 if receive_bytes is not None else READ_BYTES
    opened = Line(*await asyncio.open_connection(sock=made, limit=limit))
    try:
        yield opened
    finally:
        opened.close()


async def exchange(port: int, data: bytes, patience_s: float, source: str = "127.0.0.1") -> Reply:
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
