"""The listener of processes without HTTP: what it answers, and what it puts up with."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from prometheus_client.core import GaugeMetricFamily

from mesh.metrics import listener
from mesh.metrics.listener import MAX_CONNECTIONS, MAX_HEAD, MetricsListener, listen

NUMBERS = [GaugeMetricFamily("meshserve_answer", "To everything", 42)]


@asynccontextmanager
async def served(may_read: Callable[[str], bool] | None = None) -> AsyncIterator[int]:
    """The port where it listens."""
    bound = listen("127.0.0.1", 0)
    task = asyncio.create_task(MetricsListener(bound, lambda: NUMBERS, may_read).run())
    try:
        yield bound.getsockname()[1]
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def ask(port: int, request: bytes) -> bytes:
    """Send bytes and read until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def get(port: int, path: str = "/metrics", **headers: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(f"http://127.0.0.1:{port}{path}", headers=headers)


async def test_a_scrape_is_answered_in_the_format_that_it_asks_for():
    async with served() as port:
        plain, text = await get(port), await get(port, accept="application/openmetrics-text; version=1.0.0")
    assert (plain.status_code, text.status_code) == (200, 200)
    assert "meshserve_answer 42.0" in plain.text
    assert text.text.endswith("# EOF\n")
    assert text.headers["content-type"].startswith("application/openmetrics-text")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /other HTTP/1.1\r\nhost: x\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", b"405"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01 something else\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nhost: x\r\na: " + b"x" * (2 * MAX_HEAD), b"431"),
    ],
)
async def test_what_is_no_scrape_is_refused_in_one_line(request_, status):
    async with served() as port:
        answer = await ask(port, request_)
        assert answer.split(b" ")[1:2] == [status]
        assert (await get(port)).status_code == 200


async def test_who_has_no_key_sees_nothing():
    async with served(lambda shown: shown == "Bearer right") as port:
        refused, allowed = await get(port, authorization="Bearer wrong"), await get(port, authorization="Bearer right")
    assert (refused.status_code, allowed.status_code) == (401, 200)
    assert "meshserve_answer" not in refused.text


async def test_those_who_say_nothing_take_few_places_and_not_for_long(monkeypatch):
    monkeypatch.setattr(listener, "DEADLINE_S", 0.2)
    async with served() as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        await asyncio.sleep(0.05)
        assert await ask(port, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n") == b""
        for reader, writer in silent:
            async with asyncio.timeout(20):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()
        assert (await get(port)).status_code == 200
