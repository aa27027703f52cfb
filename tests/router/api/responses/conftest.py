"""OpenAI's client in front of the applications, which keep responses."""

from contextlib import asynccontextmanager

import httpx2
import openai
import pytest

from router.api.responses.stored import StoredResponses
from tests.router.api.conftest import gateway_of
from tests.router.api.openai.chat.conftest import model, thinking_model  # noqa: F401


@asynccontextmanager
async def client_to(app):
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://gateway")
    async with openai.AsyncOpenAI(api_key="k", base_url="http://gateway/v1", http_client=http, max_retries=0) as made:
        yield made


@pytest.fixture
async def stored(tmp_path):
    made = StoredResponses(tmp_path / "responses.sqlite", max_bytes=1 << 20, max_age_s=3600.0)
    yield made
    made.close()


@pytest.fixture
async def gateway(model, stored):  # noqa: F811
    async with gateway_of(model, max_body_bytes=5 << 20, responses=stored) as made:
        yield made


@pytest.fixture
async def thinker(thinking_model, stored):  # noqa: F811
    async with gateway_of(thinking_model, max_body_bytes=20_000, responses=stored) as made:
        yield made


@pytest.fixture
async def client(gateway):
    async with client_to(gateway.app) as made:
        yield made


@pytest.fixture
async def thinking_client(thinker):
    async with client_to(thinker.app) as made:
        yield made
