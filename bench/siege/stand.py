"""Where the witness testifies: its process, and all that it has said."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from bench.chaos.running import WaitedInVainError, until
from bench.siege.testimony import Account, Gap, Window, failures, kinds_since, worst_gap
from bench.siege.witness import KEY_VARIABLE, KNOWN, READY

SHORT_KINDS = frozenset({"stream", "answer", "chat", "form", "tokenize"})
READY_S, ROUND_S = 120.0, 90.0
MOST_ACCOUNTS = 200_000


class Stand:
    def __init__(self) -> None:
        self._accounts: list[Account] = []

    def hear(self, account: Account) -> None:
        if len(self._accounts) < MOST_ACCOUNTS:
            self._accounts.append(account)

    @property
    def is_ready(self) -> bool:
        return any(account.kind == READY for account in self._accounts)

    async def round(self, since: float) -> bool:
        """Until a request of each kind that began after that moment is over; False: some are not."""
        with suppress(WaitedInVainError):
            await until(lambda: kinds_since(self._accounts, since) >= SHORT_KINDS, "a round of the witness", ROUND_S)
            return True
        return False

    def worst_gap(self, window: Window) -> Gap:
        return worst_gap(self._accounts, window)

    def failures(self, window: Window) -> list[str]:
        return failures(self._accounts, window)

    def forget(self, before: float) -> None:
        self._accounts = [account for account in self._accounts if account.ended >= before]

    async def calm(self, seconds: float) -> Gap:
        """The worst gap while nothing happens, or what the caller does."""
        began = time.monotonic()
        await asyncio.sleep(seconds)
        ended = time.monotonic()
        await self.round(began)
        return self.worst_gap(Window(began, ended))


@asynccontextmanager
async def witnessing(port: int, model: str, known_tokens: int, key: str | None) -> AsyncIterator[Stand]:
    """Until the end of the block. Raise `WaitedInVainError` if the mesh does not serve the witness."""
    stand = Stand()
    arguments = (sys.executable, "-m", "bench.siege.witness", str(port), model, str(known_tokens))
    environment = {**os.environ, **({KEY_VARIABLE: key} if key else {})}
    process = await asyncio.create_subprocess_exec(
        *arguments, env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None, "it has a pipe"
    hearing = asyncio.create_task(_hear(process.stdout, stand))
    try:
        await until(lambda: stand.is_ready or hearing.done(), f"the {KNOWN} answer is there", READY_S)
        yield stand
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)


async def _hear(pipe: asyncio.StreamReader, stand: Stand) -> None:
    decoder = msgspec.json.Decoder(Account)
    while text := await pipe.readline():
        stand.hear(decoder.decode(text))
