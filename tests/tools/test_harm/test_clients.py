"""Clients against a scripted server."""

import asyncio
import contextlib
import json

from tests.tools.harm.clients import NO_ANSWER, Ask, Client
from tests.tools.harm.http import fetch
from tests.tools.harm.running import until

ASK = Ask((1, 2, 3), 4, seed=5, temperature=0.0)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(**choice):
    event = b"data: " + json.dumps({"id": "cmpl-xy", "choices": [choice]}).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


async def hang_up(writer):
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def server(*answer, asked=None):
    """Sends these bytes, one piece after the other, and closes."""

    serving = set()

    async def serve(reader, writer):
        serving.add(asyncio.current_task())
        try:
            await respond(reader, writer)
        finally:
            await hang_up(writer)

    async def respond(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        sizes = [line.split(": ")[1] for line in head.splitlines() if line.startswith("content-length")]
        body = await reader.readexactly(int(sizes[0])) if sizes else b"{}"
        if asked is not None:
            asked.append((head, json.loads(body)))
        for piece in answer:
            writer.write(piece)
            await asyncio.sleep(0.01)

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1]
        await asyncio.gather(*serving)


async def visit(*answer, ask=ASK, asked=None):
    async with server(*answer, asked=asked) as port, asyncio.timeout(60.0):
        return await Client("r1", port, ask, extra={"x-slo-ttft-ms": "5"}).run()


async def test_a_stream_is_noted_piece_by_piece():
    asked = []
    seen = await visit(
        HEAD, chunk(text="ab", finish_reason=None), chunk(text="c", finish_reason="length"), DONE, asked=asked
    )
    assert seen.is_whole
    assert seen.pieces == ["a", "b", "c"]
    assert seen.moments() == seen.arrivals == sorted(seen.arrivals)
    assert len(seen.arrivals) == 2
    assert seen.request == "r1-xy-0"
    [(head, body)] = asked
    assert "x-request-id: r1" in head
    assert "x-slo-ttft-ms: 5" in head
    assert body == {
        "model": "tiny", "prompt": [1, 2, 3], "max_tokens": 4, "seed": 5, "temperature": 0.0, "stream": True,
        "ignore_eos": True,
    }  # fmt: skip


async def test_tokens_are_named_where_they_are_asked_for():
    logprobs = {"tokens": ["ab", "c"]}
    seen = await visit(HEAD, chunk(text="abc", logprobs=logprobs, finish_reason="length"), DONE)
    assert seen.pieces == ["ab", "c"]
    assert Ask((1,), 1, 1, tokenwise=True).body("tiny")["logprobs"] == 0


async def test_a_stream_that_stops_short_is_not_whole():
    seen = await visit(HEAD, chunk(text="ab", finish_reason=None))
    assert not seen.is_whole
    assert "broke" in seen.problem
    assert not seen.was_refused


async def test_an_error_in_mid_stream_is_a_problem():
    event = b'data: {"error": {"message": "given up"}}\n\n'
    seen = await visit(HEAD, chunk(text="a", finish_reason=None), b"%x\r\n%b\r\n" % (len(event), event), DONE)
    assert (seen.is_whole, seen.problem) == (False, "given up")


async def test_an_answer_in_one_piece():
    body = json.dumps({"id": "cmpl-1", "choices": [{"text": "abc", "finish_reason": "length"}]}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    seen = await visit(head + body, ask=Ask((1,), 3, 1, stream=False))
    assert (seen.is_whole, seen.pieces) == (True, ["a", "b", "c"])


async def test_a_refusal_keeps_its_headers():
    body = b'{"error": {"message": "come back"}}'
    seen = await visit(b"HTTP/1.1 503 No\r\nRetry-After: 1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    assert (seen.was_refused, seen.status, seen.headers["retry-after"]) == (True, 503, "1")


async def test_a_connection_that_ends_without_an_answer_is_broken():
    seen = await visit()
    assert (seen.status, seen.was_refused) == (NO_ANSWER, False)


async def test_nobody_listens():
    async with server() as port:
        pass
    seen = await Client("r1", port, ASK).run()
    assert (seen.is_connected, seen.was_refused) == (False, True)


async def test_a_client_leaves_without_a_word():
    async with server(HEAD, chunk(text="a", finish_reason=None), *[b""] * 50) as port:
        client = Client("r1", port, ASK)
        running = asyncio.create_task(client.run())
        await until(lambda: client.pieces, "the first token")
        client.leave()
        seen = await asyncio.wait_for(running, 10.0)
    assert (seen.has_left, seen.problem) == (True, None)


async def test_a_slow_client_reads_when_it_may():
    async with server(HEAD, chunk(text="a", finish_reason="length"), DONE) as port:
        client = Client("r1", port, ASK, is_slow=True)
        running = asyncio.create_task(client.run())
        await asyncio.wait([running], timeout=0.2)
        assert client.pieces == []
        client.may_read.set()
        assert (await asyncio.wait_for(running, 10.0)).is_whole


async def test_fetching_json():
    async with server(b"HTTP/1.1 200 OK\r\n\r\n", b'{"a": 1}') as port:
        assert await fetch(port, "/") == {"a": 1}
    assert await fetch(port, "/") is None
