"""What leaves together: each ASGI message is a write to the client's connection, a system call."""

import asyncio
import json

import pytest

from mesh.clock import SystemClock
from mesh.wire.requests import FinishReason
from router.api.openai.answers.stream import MAX_UNSENT
from router.generation import Fault, RequestFailed
from router.live_generation import LiveGeneration

BODY = {"model": "tiny", "prompt": "Hello world", "stream": True}


@pytest.fixture
def generations(gateway):
    """Those that the app has asked for, fed by the test."""
    made = []

    def submit(spec, tenant="", trace=None):
        timeline = gateway.router.timelines.arrived(spec, SystemClock().now())
        made.append(LiveGeneration(timeline, lambda _: None, lambda _: None))
        gateway.router.submitted.set()
        return made[-1]

    gateway.router.submit = submit
    return made


JSON = [(b"content-type", b"application/json")]


class Client:
    """Talks ASGI; keeps the bodies of what it is sent."""

    def __init__(self, app, **fields):
        self.bodies = []
        self._app, self._body = app, json.dumps(BODY | fields).encode()
        self._has_asked = False

    async def _receive(self):
        if self._has_asked:
            await asyncio.get_running_loop().create_future()
        self._has_asked = True
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message):
        if message["type"] == "http.response.body":
            self.bodies.append(message["body"])

    async def run(self):
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": JSON, "query_string": b""}
        await self._app(scope, self._receive, self._send)


async def settle():
    for _ in range(8):
        await asyncio.sleep(0)


def num_events(body):
    return body.count(b"data: ")


async def test_batches_that_wait_leave_together_and_others_alone(gateway, generations, script):
    client = Client(gateway.app)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.run())
        await gateway.router.submitted.wait()
        for token in (10, 11, 12):
            generations[0].put(script.batch(token))
        await settle()
        assert [num_events(body) for body in client.bodies] == [3]
        generations[0].put(script.batch(13))
        await settle()
        assert [num_events(body) for body in client.bodies] == [3, 1]
        generations[0].put(script.batch(14, finish=FinishReason.LENGTH))
    assert [num_events(body) for body in client.bodies] == [3, 1, 2], "the last token leaves with the end"
    assert client.bodies[-1].endswith(b"data: [DONE]\n\n")


async def test_what_waits_for_more_is_bounded(gateway, generations, script):
    client = Client(gateway.app, max_tokens=200)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.run())
        await gateway.router.submitted.wait()
        for _ in range(2000):
            generations[0].put(script.batch(10))
        generations[0].put(script.batch(11, finish=FinishReason.LENGTH))
    assert sum(map(num_events, client.bodies)) == 2002
    assert len(client.bodies) > 1
    assert max(map(len, client.bodies)) < MAX_UNSENT + 1000


async def test_an_error_comes_after_what_was_here(gateway, generations, script):
    client = Client(gateway.app)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.run())
        await gateway.router.submitted.wait()
        generations[0].put(script.batch(10))
        generations[0].put(script.batch(11))
        generations[0].fail(RequestFailed("engines failed", Fault.SERVER))
    sent = b"".join(client.bodies)
    assert num_events(sent) == 4
    assert sent.index(b"engines failed") > sent.rindex(b'"text"')


async def test_choices_do_not_wait_for_each_other(gateway, generations, script):
    client = Client(gateway.app, n=2)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.run())
        await gateway.router.submitted.wait()
        await settle()
        generations[0].put(script.batch(10, finish=FinishReason.LENGTH))
        await settle()
        assert sum(map(num_events, client.bodies)) == 1, "the other choice may take long"
        generations[1].put(script.batch(10, finish=FinishReason.LENGTH))
    assert sum(map(num_events, client.bodies)) == 3
