"""What answers should be: those of a mesh that nothing happens to."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from bench.harm.clients import Ask, Client

AT_ONCE = 16
LIMIT_S = 120.0


class Reference:
    """Asks a healthy mesh at that port, once for each question."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._answers: dict[Ask, asyncio.Task[tuple[str, ...]]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def answer(self, ask: Ask) -> Sequence[str]:
        """Its pieces, as `Client` has them. Raise `RuntimeError` if the healthy mesh does not answer."""
        if ask not in self._answers:
            self._answers[ask] = asyncio.create_task(self._ask(ask))
        return await self._answers[ask]

    def forget(self) -> None:
        self._answers.clear()

    async def _ask(self, ask: Ask) -> tuple[str, ...]:
        async with self._turns, asyncio.timeout(LIMIT_S):
            client = await Client("reference", self._port, replace(ask, stream=False)).run()
        if not client.is_whole:
            raise RuntimeError(f"the healthy mesh answered {client.status}: {client.problem}")
        return tuple(client.pieces)
