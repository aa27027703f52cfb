"""Asks what serves metrics, as long as it runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

import httpx

Get = Callable[..., Awaitable[httpx.Response]]


@asynccontextmanager
async def scrape(server: Coroutine[None, None, None]) -> AsyncIterator[Get]:
    """While ``server`` runs, ``get(url, **headers)`` asks it."""
    task = asyncio.create_task(server)

    async def get(url: str, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient() as client:
            return await client.get(url, headers=headers)

    try:
        yield get
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
