"""Bytes to and from a gateway's HTTP server, over real sockets."""

import asyncio

from mesh.topology.schema import GatewaySpec

SPEC = GatewaySpec("gateway-0", port=0)
GET = b"GET /live HTTP/1.1\r\nhost: gateway\r\n"
END_S = 10.0


class Raw:
    """A server, and bytes to and from it."""

    def __init__(self, server, port):
        self.server, self.port = server, port
        self.writers = []

    async def connect(self, data=b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        writer.write(data)
        return reader, writer

    async def says(self, data):
        """All that comes until the server closes."""
        reader, _ = await self.connect(data)
        async with asyncio.timeout(END_S):
            try:
                return await reader.read()
            except ConnectionError:
                return b""

    async def serves(self):
        return (await self.says(GET + b"connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


def status(answer):
    return int(answer.split(b" ", 2)[1])


def post(head, body=b""):
    return (
        b"POST /v1/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n" + head + b"\r\n" + body
    )
