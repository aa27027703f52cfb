"""Exchanges over real sockets with a server that misbehaves on command."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from bench.load.client.answer import Answer
from bench.load.client.http import Address, ConnectError, HttpClient, HttpError, LostError
from mesh.errors import UserError
from tests.bench.load.small import HEAD, Asked, chunked, server, stream_of


async def ask(client: HttpClient, body: bytes = b"{}") -> Answer:
    answer = Answer(keeps_text=True)
    await client.request("POST", "/v1/completions", body, answer)
    return answer


async def test_connections_are_kept_and_used_again():
    async def answer(asked: Asked) -> None:
        asked.writer.write(stream_of(["a", "b"], completion_tokens=2))

    async with server(answer) as here:
        client = HttpClient(here.address)
        answers = [await ask(client) for _ in range(3)]
        await client.close()
    assert all(one.is_whole and one.num_chunks == 2 for one in answers)
    assert here.num_connections == 1


async def test_requests_side_by_side_have_connections_of_their_own():
    both = asyncio.Event()

    async def answer(asked: Asked) -> None:
        if len(here.asked) == 2:
            both.set()
        await both.wait()
        asked.writer.write(stream_of(["a"]))

    async with server(answer) as here:
        client = HttpClient(here.address)
        answers = await asyncio.gather(ask(client), ask(client))
        await client.close()
    assert all(one.is_whole for one in answers)
    assert here.num_connections == 2


async def test_a_kept_connection_that_died_is_no_error():
    async def answer(asked: Asked) -> None:
        if len(here.asked) == 2:
            asked.writer.transport.abort()  # after it was kept, before anything of an answer
        else:
            asked.writer.write(stream_of(["a"]))

    async with server(answer) as here:
        client = HttpClient(here.address)
        answers = [await ask(client) for _ in range(2)]
        await client.close()
    assert all(one.is_whole for one in answers)
    assert len(here.asked) == 3
    assert here.num_connections == 2


async def test_every_byte_in_a_read_of_its_own():
    async def answer(asked: Asked) -> None:
        for byte in stream_of(["é", "b"], completion_tokens=2):
            asked.writer.write(bytes([byte]))
            await asyncio.sleep(0)

    async with server(answer) as here:
        client = HttpClient(here.address)
        found = await ask(client)
        await client.close()
    assert found.is_whole
    assert found.texts == ["é", "b"]


async def test_a_body_may_end_with_its_connection():
    async def answer(asked: Asked) -> None:
        asked.writer.write(b'HTTP/1.1 200 OK\r\n\r\ndata: {"choices": [{"text": "a"}]}\n\ndata: [DONE]\n\n')
        asked.writer.close()

    async with server(answer) as here:
        assert (await ask(HttpClient(here.address))).is_whole


async def test_a_stream_that_breaks_off_is_told_from_one_that_never_began():
    async def answer(asked: Asked) -> None:
        if b"midst" in asked.body:
            asked.writer.write(HEAD + chunked(b'data: {"choices": [{"text": "a"}]}\n\n'))
            await asked.writer.drain()
        asked.writer.close()

    async with server(answer) as here:
        with pytest.raises(LostError) as midst:
            await ask(HttpClient(here.address), b'"midst"')
        with pytest.raises(LostError) as before:
            await ask(HttpClient(here.address))
    assert (midst.value.has_begun, before.value.has_begun) == (True, False)


async def test_what_is_not_http_is_an_error():
    async def answer(asked: Asked) -> None:
        asked.writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    async with server(answer) as here:
        with pytest.raises(LostError, match="not HTTP"):
            await ask(HttpClient(here.address))


async def test_nobody_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectError, match="refused"):
            await ask(HttpClient(Address("127.0.0.1", taken.getsockname()[1])))


async def test_a_request_that_is_given_up_does_not_disturb_the_next():
    async def answer(asked: Asked) -> None:
        if len(here.asked) > 1:
            asked.writer.write(stream_of(["second"]))
        else:
            asked.writer.write(HEAD + chunked(b'data: {"choices": [{"text": "first"}]}\n\n'))

    async with server(answer) as here:
        client = HttpClient(here.address)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(client), 0.2)
        async with asyncio.timeout(60):  # the server is told that nobody listens
            await here.asked[0].writer.wait_closed()
        found = await ask(client)
        await client.close()
    assert found.texts == ["second"]
    assert here.num_connections == 2


async def test_headers_and_prefix_are_sent():
    async def answer(asked: Asked) -> None:
        asked.writer.write(stream_of(["a"]))

    async with server(answer) as here:
        address = Address.parse(f"{here.address.url}/some/where/v1/")
        client = HttpClient(address, {"authorization": "Bearer key"})
        await client.request("POST", "/v1/completions", b"{}", Answer(), {"x-priority": "3"})
        await client.close()
    head = here.asked[0].head.lower()
    assert head.startswith("post /some/where/v1/completions http/1.1\r\n")
    assert "authorization: bearer key\r\n" in head
    assert "x-priority: 3\r\n" in head


async def test_tls_is_verified_unless_told_otherwise():
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(stream_of(["a"]))
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).parent / "self_signed.pem")
    listening = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        with pytest.raises(HttpError, match=r"(?i)certificate"):
            await ask(HttpClient(Address.parse(url)), b"")
        client = HttpClient(Address.parse(url, is_verified=False))
        found = await ask(client, b"")
        await client.close()
    assert found.is_whole


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("localhost:80", "http://localhost"),
        ("https://api.example.com/openai/v1", "https://api.example.com/openai"),
        ("http://[::1]:9", "http://[::1]:9"),
    ],
)
def test_base_urls(url: str, wanted: str):
    assert Address.parse(url).url == wanted


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://a:99999", "http://a/?b=c"])
def test_bad_urls_are_named(url: str):
    with pytest.raises(UserError, match="--url"):
        Address.parse(url)
