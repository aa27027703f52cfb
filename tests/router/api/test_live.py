"""The app behind its real server, with the real OpenAI client and with clients that go away."""

import asyncio
import json
import socket
from dataclasses import dataclass

import pytest

from mesh.errors import UserError
from mesh.topology.schema import GatewaySpec
from mesh.wire.requests import FinishReason
from router.api.http.callers import ClientPeers
from router.api.http.connections import Connections
from router.api.http.disconnect import Outlet
from router.api.http.server import HttpServer, listen, url_of
from router.generation import Fault, Overloaded, RequestFailed

SPEC = GatewaySpec("gateway-0", port=0)
JSON = "content-type: application/json\r\n"


@dataclass
class Live:
    gateway: object
    url: str
    port: int
    server: HttpServer
    serving: asyncio.Task


@pytest.fixture
async def live(gateway):
    listener = listen(SPEC)
    server = HttpServer(gateway.app, listener, 1.0, Connections(64, 32), ClientPeers())
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.run())
        yield Live(gateway, url_of(SPEC.address, listener), listener.getsockname()[1], server, serving)
        server.stop()


@pytest.fixture
async def client(live):
    import openai

    async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_chat_with_the_openai_client(live, client):
    tokens = live.gateway.says("Hello there", FinishReason.STOP)
    answer = await client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}])
    assert answer.choices[0].message.content == live.gateway.model.tokenizer.decode(tokens[:-1])
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == len(tokens)
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_stream_with_the_openai_client(live, client):
    live.gateway.says("naïve 日本語 👩‍👩‍👧‍👦")
    stream = await client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "Hi"}], stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content for chunk in chunks if chunk.choices)
    assert text == "naïve 日本語 👩‍👩‍👧‍👦"
    assert chunks[-1].usage.completion_tokens > 0


async def test_completions_with_the_openai_client(live, client):
    live.gateway.says(" and more")
    answer = await client.completions.create(model="tiny", prompt=["a", "b"], n=2, echo=True)
    assert [choice.text for choice in answer.choices] == ["a and more", "a and more", "b and more", "b and more"]
    stream = await client.completions.create(model="tiny", prompt=[5, 6], stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == " and more"


async def test_models_with_the_openai_client(client):
    assert [model.id async for model in client.models.list()] == ["tiny", "tiny-alias"]
    assert (await client.models.retrieve("tiny")).id == "tiny"


async def test_errors_with_the_openai_client(live, client):
    import openai

    messages = [{"role": "user", "content": "Hi"}]
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.chat.completions.create(model="other", messages=messages)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        await client.chat.completions.create(model="tiny", messages=messages, temperature=9)
    assert bad.value.param == "temperature"
    live.gateway.router.script = lambda spec: [Overloaded("full", 2.0)]
    with pytest.raises(openai.RateLimitError) as full:
        await client.chat.completions.create(model="tiny", messages=messages, stream=True)
    assert full.value.response.headers["retry-after"] == "2"


async def test_a_stream_that_breaks_raises_in_the_openai_client(live, client, script):
    import openai

    live.gateway.router.script = lambda spec: [script.batch(10), RequestFailed("engines failed", Fault.SERVER)]
    stream = await client.completions.create(model="tiny", prompt="Hi", stream=True)
    with pytest.raises(openai.APIError, match="engines failed"):
        async for _ in stream:
            pass


async def send_chat(live, stream):
    """A connection over which a chat request was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\n{JSON}content-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return reader, writer


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_while_waiting_cancels(live, stream):
    live.gateway.router.script = lambda spec: [asyncio.Event()]
    _, writer = await send_chat(live, stream)
    await live.gateway.router.submitted.wait()
    writer.close()
    await live.gateway.router.generations[0].cancelled.wait()


async def test_a_client_that_goes_away_mid_stream_cancels(live, script):
    live.gateway.router.script = lambda spec: [script.batch(10), asyncio.Event()]
    reader, writer = await send_chat(live, stream=True)
    await reader.readuntil(b"data: ")
    writer.close()
    await live.gateway.router.generations[0].cancelled.wait()


async def test_connections_are_kept_alive(live):
    live.gateway.says("Hello")
    reader, writer = await send_chat(live, stream=True)
    await reader.readuntil(b"0\r\n\r\n")
    writer.write(b"GET /live HTTP/1.1\r\nhost: gateway\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_body_without_end_is_refused(live):
    """Chunked, no length declared: refused as soon as it is too large, and the connection closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: gateway\r\n{JSON}transfer-encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    for _ in range(25):
        writer.write(b"400\r\n" + b" " * 1024 + b"\r\n")
    assert b" 413 " in await reader.readline()
    await reader.read()
    writer.close()


async def test_stopping_lets_a_stream_end(live, script):
    gate = asyncio.Event()
    live.gateway.router.script = lambda spec: [script.batch(10), gate, script.batch(11, finish=FinishReason.LENGTH)]
    reader, writer = await send_chat(live, stream=True)
    await reader.readuntil(b"data: ")
    live.server.stop()
    gate.set()
    assert b"[DONE]" in await reader.read()
    await live.serving
    writer.close()


def test_a_port_that_is_taken_is_one_clear_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"^gateway-0: cannot listen on 127.0.0.1 port {port}: another program"):
            listen(GatewaySpec("gateway-0", port=port))


def test_an_address_that_is_not_ours_is_one_clear_line():
    with pytest.raises(UserError, match=r"cannot listen on 203\.0\.113\.7 port 8000"):
        listen(GatewaySpec("gateway-0", address="203.0.113.7"))


async def test_outlet_notices_a_client_that_does_not_read():
    gate = asyncio.Event()

    async def send(message):
        await gate.wait()

    async def receive():
        await asyncio.get_running_loop().create_future()

    outlet = Outlet(send)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(outlet.send({"type": "http.response.body"}))
        await asyncio.sleep(0)
        await outlet.abandoned(receive, limit_s=0.0)
        gate.set()
