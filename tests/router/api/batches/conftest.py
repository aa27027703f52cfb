"""A gateway with batches: the app, its runner, and OpenAI's client in front of it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from router.api.access.batches import open_batch_callers
from router.api.http.callers import Caller
from router.api.openai.models import ServedModel
from router.batches import batch_run, runner
from router.batches.answering import LineAnswerer
from router.batches.parts import BatchParts
from router.batches.runner import BatchRunner
from router.batches.stored import StoredBatches
from tests.router.api.conftest import ScriptedRouter, apis_of, one_by_one

DEADLINE_S = 30.0
OVER = ("completed", "failed", "cancelled", "expired")


class Tenants:
    """Whoever names himself is let in, each with files of his own."""

    def admit(self, scope, headers) -> Caller:
        name = headers.get("authorization", "Bearer none").removeprefix("Bearer ")
        return Caller("peer", f"id:{name}")


@dataclass
class BatchGateway:
    router: ScriptedRouter
    parts: BatchParts
    http: httpx.AsyncClient
    app: object

    def client(self, name: str = "none") -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url="http://gateway/v1",
            api_key=name,
            max_retries=0,
            http_client=httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://gateway"),
        )

    async def until_over(self, batch_id: str, client: openai.AsyncOpenAI | None = None):
        async with asyncio.timeout(DEADLINE_S):
            while (found := await (client or self.client()).batches.retrieve(batch_id)).status not in OVER:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return found

    async def until_answered(self, batch_id: str, number: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while (await self.client().batches.retrieve(batch_id)).request_counts.completed < number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def create(self, text: bytes, client: openai.AsyncOpenAI | None = None, endpoint="/v1/completions", **more):
        client = client or self.client()
        file = await client.files.create(file=("lines.jsonl", text), purpose="batch")
        return await client.batches.create(
            **{"input_file_id": file.id, "endpoint": endpoint, "completion_window": "24h"} | more
        )

    async def lines_of(self, file_id: str | None, client: openai.AsyncOpenAI | None = None) -> list[dict]:
        if file_id is None:
            return []
        content = await (client or self.client()).files.content(file_id)
        return [json.loads(line) for line in content.text.splitlines()]


def lines(count: int, path: str = "/v1/completions", **body: object) -> bytes:
    """A file of so many requests."""
    asked = {"model": "tiny", "prompt": "Hello world", "max_tokens": 4} | body
    rows = [{"custom_id": f"line-{number}", "method": "POST", "url": path, "body": asked} for number in range(count)]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(runner, "LOOK_S", 0.02)
    monkeypatch.setattr(batch_run, "WATCH_S", 0.02)
    monkeypatch.setattr(batch_run, "RETRY_S", 0.02)


@asynccontextmanager
async def gateway_with(
    model: ServedModel, folder: Path, script=None, wall_clock=time.time, max_bytes: int = 1 << 20, runs: bool = True
) -> AsyncIterator[BatchGateway]:
    router = ScriptedRouter(script or (lambda spec: one_by_one([10, 11])))
    stored = StoredBatches(folder, max_bytes)
    answerer = LineAnswerer()
    made = BatchRunner(stored, answerer, open_batch_callers, wall_clock, "gateway-0", 8)
    parts = BatchParts(stored, answerer, made, max_bytes)
    app = apis_of(model, router, 20_000, batches=parts, wall_clock=wall_clock, callers=Tenants()).public
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as http:
        running = asyncio.create_task(made.run()) if runs else None
        try:
            yield BatchGateway(router, parts, http, app)
        finally:
            made.stop()
            if running is not None:
                await running
            stored.close()


@pytest.fixture
async def batches(model, tmp_path) -> AsyncIterator[BatchGateway]:
    async with gateway_with(model, tmp_path / "batches") as made:
        yield made
