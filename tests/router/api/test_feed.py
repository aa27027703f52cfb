"""GET /mesh/feed over a real socket: a reader that goes away, and one too many."""

import asyncio

import pytest

from mesh.clock import SystemClock
from router.api.feed import FeedResponse
from router.feed.broadcast import FeedBroadcast
from router.feed.frames import Hello, decode
from tests.router.feed_sources import sources_of


class Reader:
    """An ASGI connection that reads until it goes away."""

    def __init__(self):
        self.sent = asyncio.Queue()
        self.gone = asyncio.Event()

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.put_nowait(message)


@pytest.fixture
async def broadcast():
    made = FeedBroadcast(sources_of(), SystemClock())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        yield made
        running.cancel()


async def test_a_reader_is_forgotten_as_soon_as_it_goes_away(broadcast):
    reader = Reader()
    answering = asyncio.create_task(FeedResponse(broadcast)({}, reader.receive, reader.send))
    start, first = await reader.sent.get(), await reader.sent.get()
    assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert isinstance(decode(first["body"].split(b"\n")[1].removeprefix(b"data: ")), Hello)
    assert broadcast.num_readers == 1
    reader.gone.set()
    await answering
    assert broadcast.num_readers == 0


async def test_a_gateway_that_leaves_ends_the_answer(broadcast):
    reader = Reader()
    answering = asyncio.create_task(FeedResponse(broadcast)({}, reader.receive, reader.send))
    await reader.sent.get()
    broadcast.end()
    await answering
    messages = [reader.sent.get_nowait() for _ in range(reader.sent.qsize())]
    assert messages[-2]["body"].startswith(b"event: bye")
    assert messages[-1]["more_body"] is False


async def test_one_reader_too_many_is_told_so(gateway, monkeypatch):
    monkeypatch.setattr(FeedBroadcast, "is_full", True)
    response = await gateway.admin.get("/mesh/feed")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "feed_full")
    assert response.headers["retry-after"] == "10"
