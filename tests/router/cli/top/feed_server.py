"""A gateway's admin address with a feed, as far as `mesh top` asks for it."""

import asyncio
from contextlib import asynccontextmanager

from router.feed.frames import Frame, encode
from tests.router.cli.top.told import snapshot

HEAD = b"HTTP/1.1 %b\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ERROR = b'{"error": {"message": "show a key"}}'


class FeedServer:
    """``stories``: bodies of `/mesh/requests/ID`. ``key``: asked for, if there is one."""

    def __init__(self, gateway: str = "g") -> None:
        self.gateway = gateway
        self.stories: dict[str, bytes] = {}
        self.key = ""
        self.port = 0
        self._server: asyncio.Server | None = None
        self._readers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        """As a process that is killed: nobody listens any more, and connections break off."""
        if self._server is not None:
            self._server.close()
        for writer in self._readers:
            writer.transport.abort()
        self._readers.clear()
        await asyncio.sleep(0)

    def tell(self, *frames: Frame) -> None:
        for writer in self._readers:
            writer.write(_chunk(b"".join(map(encode, frames))))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        if self.key and f"authorization: Bearer {self.key}".encode() not in head:
            writer.write(HEAD % b"401 Unauthorized" + _chunk(ERROR) + _chunk(b""))
        elif path == "/mesh/feed":
            self._readers.add(writer)
            writer.write(HEAD % b"200 OK" + _chunk(b"".join(map(encode, snapshot(self.gateway)))))
            return
        else:
            body = self.stories.get(path.removeprefix("/mesh/requests/"), b"")
            writer.write(
                HEAD % (b"200 OK" if body else b"404 Not Found") + (_chunk(body) if body else b"") + _chunk(b"")
            )
        await writer.drain()
        writer.close()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def feed_server(gateway: str = "g"):
    server = FeedServer(gateway)
    await server.start()
    try:
        yield server
    finally:
        await server.die()
