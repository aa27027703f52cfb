"""The client of calls keeps connections, notices whatever ends an answer, and holds no more than it may."""

import asyncio
from dataclasses import dataclass, field

import pytest

from router.servers.stream.client import MAX_HEAD, CallClient
from tests.router.servers.nasty import NastyServer, chunked, hangs, says, serving, whole

DEADLINE_S = 30.0


@dataclass
class Taken:
    """What came."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    reason: str = ""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def head(self, status, headers):
        self.status, self.headers = status, dict(headers)

    def data(self, data):
        self.body += data

    def end(self):
        self.over.set()

    def broken(self, reason):
        self.reason = reason
        self.over.set()


async def ask(client, path="/v1/x"):
    taken = Taken()
    client.call(path, [("x-a", "b")], b'{"a": 1}', taken)
    async with asyncio.timeout(DEADLINE_S):
        await taken.over.wait()
    return taken


@pytest.fixture
async def client_of():
    clients = []

    def client_of(server: NastyServer, **more):
        clients.append(CallClient(server.url + "/base", [("x-fixed", "c")], None, **{"connect_timeout_s": 5.0, **more}))
        return clients[-1]

    yield client_of
    for client in clients:
        client.close()


async def test_a_call_is_sent_and_its_connection_is_used_again(client_of):
    async with serving(says(whole({"ok": True}))) as [server]:
        client = client_of(server)
        for _ in range(3):
            taken = await ask(client)
            assert (taken.status, taken.body, taken.headers["content-type"]) == (
                200,
                b'{"ok": true}',
                "application/json",
            )
        assert len(server._writers) == 1
        asked = server.asked[0]
        assert (asked.path, asked.body) == ("/base/v1/x", {"a": 1})
        assert (asked.headers["x-a"], asked.headers["x-fixed"]) == ("b", "c")
        assert asked.headers["host"] == f"127.0.0.1:{server.port}"


async def test_answers_may_be_chunked_or_end_with_the_connection(client_of):
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"
    parts = chunked(b"one ") + chunked(b"two") + b"0\r\n\r\n"
    async with serving(says(head + b"transfer-encoding: chunked\r\n\r\n" + parts)) as [server]:
        client = client_of(server)
        assert (await ask(client)).body == b"one two"
        server.behaviour = says(head + b"\r\nall of it", then_closes=True)
        taken = await ask(client)
        assert (taken.body, taken.reason) == (b"all of it", "")


async def test_a_connection_that_was_closed_meanwhile_is_made_anew(client_of):
    async with serving(says(whole({}))) as [server]:
        client = client_of(server)
        await ask(client)
        server.behaviour = says(whole({}), then_closes=True)
        assert (await ask(client)).reason == ""
        assert (await ask(client)).reason == ""
        assert (await ask(client)).reason == ""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "closed the connection"),
        (b"SSH-2.0\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 2 * MAX_HEAD, "more than"),
        (b"HTTP/1.1 200 OK\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(20_000)), "more than"),
    ],
)
async def test_what_is_no_answer_is_said_to_be_broken(client_of, data, reason):
    async with serving(says(data, then_closes=True)) as [server]:
        assert reason in (await ask(client_of(server))).reason


async def test_nobody_there_and_nobody_who_listens_is_the_callers_to_know(client_of):
    async with serving(hangs) as [server]:
        pass
    assert "cannot be reached" in (await ask(client_of(server))).reason


async def test_a_call_that_is_stopped_closes_its_connection_and_says_no_more(client_of):
    async with serving(hangs) as [server]:
        taken = Taken()
        ongoing = client_of(server).call("/", [], b"{}", taken)
        async with asyncio.timeout(DEADLINE_S):
            while not server.asked:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            ongoing.stop()
            await server.asked[0].gone.wait()
        assert not taken.over.is_set()


async def test_what_a_server_says_unasked_ends_its_connection(client_of):
    async with serving(says(whole({}) + b"HTTP/1.1 200 OK\r\n")) as [server]:
        client = client_of(server)
        await ask(client)
        assert (await ask(client)).status == 200
