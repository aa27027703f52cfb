"""The mock backend says as many tokens as it is asked for, in its own time, to streams and to whole answers."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from bench.load.client.answer import Answer
from bench.load.client.fetch import fetch_json
from bench.load.client.http import Address, HttpClient
from bench.load.mock_backend import Exchanges, Pace, Served

PACE = Pace(first_s=0.05, gap_s=0.01)


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Exchanges(PACE, "mock", Served()), "127.0.0.1", 0)
    made = HttpClient(Address("127.0.0.1", server.sockets[0].getsockname()[1]))
    yield made
    await made.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stream_has_its_tokens_and_not_before_their_times(client: HttpClient, path: str):
    for number in (1, 6):
        answer, began = Answer(), time.monotonic()
        await client.request("POST", path, b'{"prompt": [1, 2, 3], "max_tokens": %d, "stream": true}' % number, answer)
        assert answer.is_whole
        assert answer.num_chunks == number
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, number)
        assert answer.first_at is not None
        assert answer.last_at is not None
        assert answer.first_at - began >= PACE.first_s
        assert answer.last_at - began >= PACE.first_s + (number - 1) * PACE.gap_s


async def test_the_rest_of_the_api(client: HttpClient):
    models = await fetch_json(client, "GET", "/v1/models")
    assert [model["id"] for model in models["data"]] == ["mock"]
    whole = await fetch_json(client, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 3})
    assert whole["choices"][0]["text"] == " a a a"
    assert whole["usage"]["completion_tokens"] == 3
    assert await fetch_json(client, "GET", "/served") == {"served": 1}
