"""The attackers' HTTP against servers that answer, drip, cut off and say nothing."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.tools.harm.http import exchange, line, request


@asynccontextmanager
async def server(answer, *, closes=True):
    """Answers these bytes to whatever comes."""
    seen, serving = [], []

    async def serve(reader, writer):
        serving.append(asyncio.current_task())
        seen.append((await reader.read(2**16), writer.get_extra_info("peername")[0]))
        writer.write(answer)
        if not closes:
            await reader.read()
        writer.close()

    started = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield started.sockets[0].getsockname()[1], seen
    finally:
        started.close()
        await asyncio.gather(*serving)


@pytest.mark.parametrize(
    ("answer", "status", "body", "is_closed"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, b"hi", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200, b"hi", False),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 No\r\n\r\nbig", 413, b"big", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi", 200, b"hi", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", 200, b"hi", True),
        (b"", None, b"", True),
        (b"garbage\r\n\r\n", None, b"", True),
    ],
)
async def test_replies_are_read_as_far_as_they_come(answer, status, body, is_closed):
    async with server(answer) as (port, _):
        reply = await exchange(port, b"x", 2.0)
    assert (reply.status, reply.body, reply.is_closed, reply.is_late) == (status, body, is_closed, False)


async def test_patience_ends():
    async with server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi", closes=False) as (port, _):
        reply = await exchange(port, b"x", 0.5)
    assert (reply.status, reply.is_late) == (200, True)


async def test_nobody_listens():
    async with server(b"") as (port, _):
        pass
    assert (await exchange(port, b"x", 1.0)).is_closed


async def test_attackers_have_addresses_of_their_own():
    async with server(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") as (port, seen):
        await exchange(port, request(port, "/x", b"{}", {"x-a": "b"}), 1.0, "127.0.0.9")
    [(data, peer)] = seen
    assert peer == "127.0.0.9"
    assert data.startswith(b"POST /x HTTP/1.1\r\n")
    assert data.endswith(b"x-a: b\r\n\r\n{}")


async def test_a_line_tells_whether_it_is_closed():
    async with server(b"", closes=False) as (port, _), line(port, "127.0.0.1") as opened:
        assert not await opened.closes(0.05)
    async with server(b"bye") as (port, _), line(port, "127.0.0.1") as opened:
        await opened.send(b"x")
        assert await opened.closes(2.0)
