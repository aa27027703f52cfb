"""Feeds over sockets."""

import asyncio

import pytest

from router.cli.top.feeds import links as module
from router.cli.top.feeds.links import Link
from router.feed.frames import Bye, Hello, RequestsFrame
from tests.router.cli.top.feed_server import feed_server
from tests.router.cli.top.told import NOW, snapshot


class Reader:
    """What a link tells."""

    def __init__(self):
        self.told = asyncio.Queue()

    def take(self, gateway, frame):
        self.told.put_nowait(frame)

    def lose(self, gateway, why):
        self.told.put_nowait(why)

    async def until(self, kind):
        async with asyncio.timeout(10):
            while not isinstance(told := await self.told.get(), kind):
                pass
        return told


@pytest.fixture(autouse=True)
def retry_soon(monkeypatch):
    monkeypatch.setattr(module, "RETRY_S", 0.01)


@pytest.fixture
async def read():
    """Begin to read a feed; return what it tells."""
    async with asyncio.TaskGroup() as tasks:
        running = []

        def begin(url, gateway="g", headers=None):
            reader = Reader()
            link = Link(gateway, lambda _: url, headers or {}, reader.take, reader.lose)
            running.append(tasks.create_task(link.run()))
            return reader

        yield begin
        for task in running:
            task.cancel()


async def test_frames_come_and_come_again_after_a_death(read):
    async with feed_server() as server:
        reader = read(server.url)
        assert await reader.until(Hello) == snapshot()[0]
        await reader.until(RequestsFrame)
        await server.die()
        await reader.until(str)
        await server.start()
        await reader.until(Hello)
        server.tell(Bye(NOW))
        assert await reader.until(str) == "its feed ended"
        await reader.until(Hello)


@pytest.mark.parametrize(
    ("key", "gateway", "url", "why"),
    [
        ("secret", "g", None, "show a key (status 401)"),
        ("", "other", None, "the gateway g answers in its place"),
        ("", "g", "http://127.0.0.1:1", "cannot be reached (Connection refused)"),
        ("", "g", "http://127.0.0.1:no", "has no address that can be read"),
    ],
)
async def test_why_nothing_comes_is_told(read, key, gateway, url, why):
    async with feed_server() as server:
        server.key = key
        assert await read(url or server.url, gateway).until(str) == why


async def test_a_gateway_that_nobody_knows_is_told():
    reader = Reader()
    task = asyncio.create_task(Link("g", lambda _: None, {}, reader.take, reader.lose).run())
    assert await reader.until(str) == "it does not run, or says nothing"
    task.cancel()


async def test_the_key_is_shown(read):
    async with feed_server() as server:
        server.key = "secret"
        await read(server.url, headers={"authorization": "Bearer secret"}).until(Hello)


@pytest.mark.parametrize(
    "noise", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nevent: hello\ndata: {}\n\n", b""]
)
async def test_what_is_no_gateway_is_told(read, noise):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(noise)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        why = await read(f"http://{host}:{port}").until(str)
        assert why.startswith(("does not speak HTTP", "what it tells is no feed", "closed the connection"))


async def test_a_gateway_that_says_nothing_is_left(read, monkeypatch):
    monkeypatch.setattr(module, "SILENCE_S", 0.01)
    async with feed_server() as server:
        assert (await read(server.url).until(str)).startswith("says nothing")
