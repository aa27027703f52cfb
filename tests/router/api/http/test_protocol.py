"""What a socket may do to the server: each abuse is answered with 4xx or cut off, and others are served meanwhile."""

import asyncio
import json

import pytest
import uvicorn
from uvicorn.server import ServerState

from router.api.http import connections
from router.api.http.callers import ClientPeers
from router.api.http.connections import Connections
from router.api.http.protocol import BoundedProtocol
from router.api.http.server import HttpServer, listen
from tests.router.api.raw_http import END_S, GET, SPEC, Raw, post, status

JSON = b"content-type: application/json\r\n"


@pytest.fixture
async def raw(gateway, monkeypatch):
    monkeypatch.setattr("router.api.http.server.LOOK_S", 0.01)
    listener = listen(SPEC)
    server = HttpServer(gateway.app, listener, 1.0, Connections(64, 32), ClientPeers())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.run())
        made = Raw(server, listener.getsockname()[1])
        yield made
        for writer in made.writers:
            writer.close()
        server.stop()


REFUSED = {
    "a long path": (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
    "a long query": (b"GET /live?" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
    "a path without end": (b"GET /" + b"x" * 200_000, 414),
    "a large header": (GET + b"x: " + b"x" * 40_000 + b"\r\n\r\n", 431),
    "a header without end": (GET + b"x: " + b"x" * 200_000, 431),
    "a name without end": (GET + b"x" * 200_000, 431),
    "many headers": (GET + b"a: b\r\n" * 101 + b"\r\n", 431),
    "many headers without end": (GET + b"a: b\r\n" * 50_000, 431),
    "no http": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400),
    "http/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "an unknown version": (b"GET / HTTP/9.9\r\n\r\n", 400),
    "an unknown method": (b"HELLO / HTTP/1.1\r\n\r\n", 400),
    "connect": (b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n", 400),
    "bytes that no path has": (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", 400),
    "two lengths": (post(b"content-length: 5\r\ncontent-length: 6\r\n", b"hello"), 400),
    "a length and chunks": (post(b"content-length: 5\r\ntransfer-encoding: chunked\r\n", b"0\r\n\r\n"), 400),
    "a negative length": (post(b"content-length: -1\r\n"), 400),
    "a length beyond numbers": (post(b"content-length: " + b"9" * 40 + b"\r\n"), 400),
    "compressed chunks": (post(b"transfer-encoding: gzip, chunked\r\n", b"0\r\n\r\n"), 501),
    "a chunk that is no number": (post(b"transfer-encoding: chunked\r\n", b"zz\r\n"), 400),
    "a chunk larger than numbers": (post(b"transfer-encoding: chunked\r\n", b"f" * 20 + b"\r\n"), 400),
    "a folded header": (GET + b"x: a\r\n b\r\n\r\n", 400),
    "a blank before the colon": (GET + b"x : a\r\n\r\n", 400),
    "a NUL in a header": (GET + b"x: a\0b\r\n\r\n", 400),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_abuse_of_http_is_refused_and_the_connection_closed(raw, name):
    data, wanted = REFUSED[name]
    answer = await raw.says(data)
    assert status(answer) == wanted
    assert b"connection: close" in answer
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert await raw.serves()


async def test_a_compressed_body_is_refused(raw):
    answer = await raw.says(post(b"content-encoding: gzip\r\ncontent-length: 2\r\nconnection: close\r\n", b"{}"))
    assert status(answer) == 415


async def test_an_upgrade_is_answered_as_any_request(raw):
    for upgrade in (b"websocket", b"h2c"):
        reader, _ = await raw.connect(GET + b"connection: upgrade\r\nupgrade: " + upgrade + b"\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    assert await raw.serves()


async def test_requests_in_a_row_are_answered_in_order_up_to_a_bound(raw):
    few = await raw.says(GET + b"\r\n" + GET + b"\r\n" + GET + b"connection: close\r\n\r\n")
    assert few.count(b"HTTP/1.1 200") == 3
    many = await raw.says((GET + b"\r\n") * 2000)
    assert many.count(b"HTTP/1.1 200") <= connections.MAX_PIPELINED + 1
    assert await raw.serves()


@pytest.mark.parametrize(
    ("limit", "value", "data", "wanted"),
    [
        ("FIRST_BYTE_S", 0.05, b"", None),
        ("HEAD_S", 0.05, GET, 408),
        ("HEAD_S", 0.05, b"G", 408),
        ("BODY_GRACE_S", 0.05, post(b"content-length: 1000\r\n", b"{"), 408),
        ("BODY_GRACE_S", 0.05, post(b"transfer-encoding: chunked\r\n", b"1\r\n{\r\n"), 408),
        (
            "LINGER_S",
            0.05,
            b"POST /nowhere HTTP/1.1\r\nhost: a\r\n" + JSON + b"content-length: 100000\r\n\r\n{",
            404,
        ),
    ],
)
async def test_a_slow_client_is_cut_off(raw, monkeypatch, limit, value, data, wanted):
    monkeypatch.setattr(connections, limit, value)
    answer = await raw.says(data)
    assert (status(answer) if answer else None) == wanted
    assert await raw.serves()


async def test_a_head_that_drips_is_cut_off(raw, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_S", 0.1)
    reader, writer = await raw.connect()
    async with asyncio.timeout(END_S):
        for byte in GET * 100:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
            if writer.is_closing() or reader.at_eof():
                break
    assert len(raw.server.connections) == 0


async def test_half_sent_requests_of_one_keep_nobody_out(raw):
    for _ in range(40):
        await raw.connect(GET)
    assert len(raw.server.connections) <= 32
    refused = await raw.says(GET)
    assert status(refused) == 503


async def test_an_idle_connection_gives_way_to_a_new_one(raw):
    for _ in range(40):
        reader, _ = await raw.connect(GET + b"\r\n")
        assert b" 200 " in await reader.readline()
    assert await raw.serves()


class Full(asyncio.Transport):
    """Of a client that does not read."""

    def __init__(self):
        super().__init__()
        self.aborted = False

    def get_write_buffer_size(self):
        return 1_000_000

    def is_closing(self):
        return False

    def close(self):
        """It has been read to its end."""

    def abort(self):
        self.aborted = True


async def test_a_client_that_does_not_read_its_answer_is_cut_off(gateway):
    config, peers = (
        uvicorn.Config(gateway.app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False),
        ClientPeers(),
    )
    one = BoundedProtocol(config, ServerState(), {}, connections=Connections(8, 8), peers=peers)
    one.connection_made(transport := Full())
    for now in range(int(connections.STALL_S)):
        one.look(one.loop.time() + now)
        assert not transport.aborted
    one.look(one.loop.time() + connections.STALL_S + 1)
    assert transport.aborted
