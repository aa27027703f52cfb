"""What a socket may do between requests and around their answers: others are served, and nothing is left behind."""

import asyncio
import json
import logging
import socket
import struct

import pytest
import uvicorn
from uvicorn.server import ServerState

from mesh.wire.requests import FinishReason
from router.api.http import connections
from router.api.http.callers import ClientPeers
from router.api.http.connections import Connections
from router.api.http.protocol import BoundedProtocol
from router.api.http.server import HttpServer, listen
from tests.router.api.conftest import batch
from tests.router.api.raw_http import GET, SPEC, Raw, post, status

CHUNKED = b"transfer-encoding: chunked\r\n"
LEAVE = b"connection: close\r\n"


@pytest.fixture
async def raw(gateway, monkeypatch):
    monkeypatch.setattr("router.api.http.server.LOOK_S", 0.01)
    listener = listen(SPEC)
    every = Connections(64, 32)
    server = HttpServer(gateway.app, listener, 1.0, every, ClientPeers())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.run())
        made = Raw(server, listener.getsockname()[1])
        yield made
        every.check_invariants()
        for writer in made.writers:
            writer.close()
        server.stop()


@pytest.fixture
def stuck(gateway):
    """From now on answers stop after two tokens, until the event is set."""
    event = asyncio.Event()
    gateway.router.script = lambda spec: [batch(10), batch(11), event, batch(12, finish=FinishReason.LENGTH)]
    return event


def ask(**parameters):
    body = json.dumps({"model": "tiny", "prompt": "Hello world"} | parameters).encode()
    return post(b"content-length: %d\r\n" % len(body), body)


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


async def is_true(condition):
    async with asyncio.timeout(5.0):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_garbage_behind_a_request_is_not_answered_inside_its_stream(raw, gateway, stuck, logged):
    reader, writer = await raw.connect(ask(stream=True))
    await reader.readuntil(b"data: ")
    writer.write(ask() + b"\x16 no request\r\n\r\n")
    async with asyncio.timeout(5.0):
        rest = await reader.read()
    assert b"HTTP/1.1" not in rest
    await is_true(gateway.router.generations[0].cancelled.is_set)
    assert len(gateway.router.generations) == 1
    assert not [entry for entry in logged if entry["log_level"] == "error"]
    assert await raw.serves()


async def test_who_goes_away_with_requests_waiting_is_noticed(raw, gateway, stuck):
    reader, writer = await raw.connect(ask(stream=True) + ask() + ask())
    await reader.readuntil(b"data: ")
    writer.transport.abort()
    await is_true(gateway.router.generations[0].cancelled.is_set)
    assert len(gateway.router.generations) == 1, "the others never begin"


async def test_a_request_may_wait_for_the_answer_before_it(raw, monkeypatch, stuck):
    for limit in ("BODY_GRACE_S", "HEAD_S", "LINGER_S"):
        monkeypatch.setattr(connections, limit, 0.05)
    second = ask(stream=True)
    reader, writer = await raw.connect(ask(stream=True) + second[:-5])
    await reader.readuntil(b"data: ")
    await asyncio.sleep(0.3)
    writer.write(second[-5:])
    stuck.set()
    async with asyncio.timeout(5.0):
        await reader.readuntil(b"[DONE]")
        await reader.readuntil(b"[DONE]")


async def test_a_refused_client_that_waits_to_continue_leaves_no_trace(raw, logged):
    answer = await raw.says(post(CHUNKED + b"expect: 100-continue\r\n", b"zz\r\n"))
    assert status(answer) == 400
    assert b"100 Continue" not in answer
    assert await raw.serves()
    assert not [entry for entry in logged if entry["log_level"] == "error"]


async def test_trailers_are_no_headers(raw):
    body = b'{"model":"tiny","prompt":"Hello world"}'
    answer = await raw.says(
        post(CHUNKED + LEAVE, chunk(body) + b"0\r\nx-request-id: trailer\r\nx-slo-ttft-ms: x\r\n\r\n")
    )
    assert status(answer) == 200
    assert b"trailer" not in answer


AROUND = {
    "a trailer without end": (b"0\r\nx: ", b"x" * 65_536),
    "many trailers": (b"0\r\n", b"x: y\r\n"),
    "a chunk's extension without end": (b"1;", b"x" * 65_536),
    "large extensions of small chunks": (b"", b"1;" + b"x" * 8192 + b"\r\n \r\n"),
    "chunks of a byte": (b"", b"1\r\n \r\n" * 10_000),
}


@pytest.mark.parametrize("name", AROUND)
async def test_what_is_around_a_body_is_bounded(raw, name):
    begin, more = AROUND[name]
    reader, writer = await raw.connect(post(CHUNKED) + begin)
    num_bytes = 0
    async with asyncio.timeout(10.0):
        while not reader._buffer and num_bytes < 8 * 2**20:  # it is not read until the answer is there
            writer.write(more)
            num_bytes += len(more)
            await asyncio.sleep(0)
        answer = await reader.read()
    assert status(answer) in (400, 431)
    assert b"connection: close" in answer
    assert num_bytes < 2**20
    assert await raw.serves()


async def test_blanks_during_an_answer_are_bounded(raw, gateway, stuck):
    reader, writer = await raw.connect(ask(stream=True))
    await reader.readuntil(b"data: ")
    for _ in range(64):
        writer.write(b"\r\n" * 2048)
        await asyncio.sleep(0)
    await is_true(gateway.router.generations[0].cancelled.is_set)


async def test_bodies_in_honest_chunks_are_read(raw):
    body = json.dumps({"model": "tiny", "prompt": "Hello " * 3, "stop": "x" * 900}).encode()
    pieces = b"".join(chunk(body[i : i + 16]) for i in range(0, len(body), 16))
    assert status(await raw.says(post(CHUNKED + LEAVE, pieces + b"0\r\n\r\n"))) == 200


async def counts(scope, receive, send):
    """An app that says how long the body was."""
    num_bytes, more = 0, True
    while more:
        message = await receive()
        num_bytes += len(message["body"])
        more = message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % num_bytes})


@pytest.mark.parametrize("num_bytes", [0, 1, 65_536, 100_000, 3_000_000])
async def test_large_bodies_are_read_in_whatever_pieces_they_come(num_bytes):
    listener = listen(SPEC)
    server = HttpServer(counts, listener, 1.0, Connections(8, 8), ClientPeers())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.run())
        made = Raw(server, listener.getsockname()[1])
        body = b"x" * num_bytes
        whole = post(LEAVE + b"content-length: %d\r\n" % num_bytes, body)
        chunked = post(LEAVE + CHUNKED, b"".join(chunk(body[i : i + 8192]) for i in range(0, num_bytes, 8192)))
        for request in (whole, chunked + b"0\r\n\r\n"):
            answer = await made.says(request)
            assert status(answer) == 200
            assert b"%d" % num_bytes in answer.partition(b"\r\n\r\n")[2]
        for writer in made.writers:
            writer.close()
        server.stop()


async def test_a_body_that_comes_after_its_answer_leaves_no_idle_connection(raw, monkeypatch):
    monkeypatch.setattr(connections, "KEEP_ALIVE_S", 0.1)
    reader, writer = await raw.connect(b"POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab")
    await reader.readuntil(b"}}")
    writer.write(b"cd")
    async with asyncio.timeout(5.0):
        assert await reader.read() == b""


async def test_the_answer_to_a_body_that_is_too_large_arrives(raw):
    body = b" " * 4_000_000
    for _ in range(5):
        assert status(await raw.says(post(b"content-length: %d\r\n" % len(body), body))) == 413
    assert await raw.serves()


@pytest.mark.parametrize(("hosts", "wanted"), [(b"", 400), (b"host: a\r\nhost: b\r\n", 400), (b"host: a\r\n", 200)])
async def test_a_request_names_one_host(raw, hosts, wanted):
    assert status(await raw.says(b"GET /live HTTP/1.1\r\n" + hosts + LEAVE + b"\r\n")) == wanted


async def test_http_1_0_names_none(raw):
    assert status(await raw.says(b"GET /live HTTP/1.0\r\n\r\n")) == 200


async def test_those_who_go_at_once_leave_nothing(raw, monkeypatch, logged, caplog):
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    for data in (b"\x16 no request\r\n\r\n", b"GET /", GET + b"\r\n", ask(stream=True), post(CHUNKED, b"5\r\n")):
        for linger in (struct.pack("ii", 0, 0), struct.pack("ii", 1, 0)):
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", raw.port)) as one:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    one.send(data)
            await asyncio.sleep(0.02)
    await is_true(lambda: not len(raw.server.connections))
    assert await raw.serves()
    assert not [entry for entry in logged if entry["log_level"] == "error"]
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


class Trickling(asyncio.Transport):
    """Of a client that reads a byte now and then."""

    def __init__(self):
        super().__init__()
        self.unsent = 1_000_000
        self.aborted = False

    def get_write_buffer_size(self):
        self.unsent -= 1
        return self.unsent

    def is_closing(self):
        return False

    def write(self, data):
        self.unsent += len(data)

    def pause_reading(self):
        """It has the next request already."""

    def abort(self):
        self.aborted = True


async def test_who_does_not_read_cannot_hide_behind_another_request(gateway):
    """While the next answer waits to begin, nothing is added to the one that is not read."""
    config = uvicorn.Config(gateway.app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False)
    one = BoundedProtocol(config, ServerState(), {}, connections=Connections(8, 8), peers=ClientPeers())
    one.connection_made(transport := Trickling())
    one.pause_writing()
    one.data_received(GET + b"\r\n" + GET + b"\r\n")
    await asyncio.sleep(0)
    now = one.loop.time()
    for elapsed_s in range(int(connections.STALL_S)):
        one.look(now + elapsed_s)
        assert not transport.aborted
    one.look(now + connections.STALL_S + 1)
    assert transport.aborted
    one.connection_lost(ConnectionResetError())


async def test_an_idle_connection_is_closed_once_for_each_newcomer(raw):
    for _ in range(32):
        reader, _ = await raw.connect(GET + b"\r\n")
        await reader.readuntil(b"}")
    busy = [await raw.connect(GET) for _ in range(32)]
    await asyncio.sleep(0.1)
    assert len(raw.server.connections) == 32
    assert not [reader for reader, _ in busy if reader.at_eof()]
