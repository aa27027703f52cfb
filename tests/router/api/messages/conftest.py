"""Anthropic's client in front of the applications."""

import anthropic
import httpx2
import pytest

from tests.router.api.openai.chat.conftest import gateway, model, thinker, thinking_model  # noqa: F401


def client_to(app, **more):
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://gateway")
    return anthropic.AsyncAnthropic(api_key="key", base_url="http://gateway", http_client=http, max_retries=0, **more)


@pytest.fixture
async def client(gateway):  # noqa: F811
    async with client_to(gateway.app) as made:
        yield made


@pytest.fixture
async def thinking_client(thinker):  # noqa: F811
    async with client_to(thinker.app) as made:
        yield made
