"""What the witness says: accounts of its requests, and what follows from them."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import NamedTuple

import msgspec

from bench.harm.running import WaitedInVainError, until

READY = "ready"
SHORT_KINDS = frozenset({"stream", "answer", "chat", "form", "tokenize"})
READY_S, ROUND_S = 120.0, 90.0
MOST_ACCOUNTS = 200_000


class Account(msgspec.Struct, frozen=True):
    """One request of the witness. Times are of the machine's monotonic clock."""

    kind: str
    began: float
    ended: float
    arrivals: list[float] = []
    problem: str | None = None


class Gap(NamedTuple):
    """How long nothing came, and of what."""

    seconds: float
    kind: str


class Window(NamedTuple):
    start: float
    end: float

    def meets(self, start: float, end: float) -> bool:
        return end > self.start and start < self.end


class Accounts:
    """All that the witness has said."""

    def __init__(self) -> None:
        self._accounts: list[Account] = []

    def hear(self, account: Account) -> None:
        if len(self._accounts) < MOST_ACCOUNTS:
            self._accounts.append(account)

    @property
    def is_ready(self) -> bool:
        return any(account.kind == READY for account in self._accounts)

    def worst_gap(self, window: Window) -> Gap:
        """Of all silences that the window had a part in; each counts whole."""
        gaps = [
            Gap(after - before, account.kind)
            for account in self._accounts
            for before, after in pairwise((account.began, *account.arrivals, account.ended))
            if window.meets(before, after)
        ]
        return max(gaps, default=Gap(0.0, ""))

    def failures(self, window: Window) -> list[str]:
        found = [account for account in self._accounts if account.problem]
        return [f"{one.kind}: {one.problem}" for one in found if window.meets(one.began, one.ended)]

    def kinds_since(self, moment: float) -> frozenset[str]:
        """Of which a whole request began and ended after that moment."""
        return frozenset(account.kind for account in self._accounts if account.began >= moment)

    async def round(self, since: float) -> bool:
        """Until a request of each kind that began after that moment is over; False: some are not."""
        with suppress(WaitedInVainError):
            await until(lambda: self.kinds_since(since) >= SHORT_KINDS, "a round of the witness", ROUND_S)
            return True
        return False

    async def calm(self, seconds: float) -> Gap:
        """The worst gap while nothing happens, or what the caller does."""
        began = time.monotonic()
        await asyncio.sleep(seconds)
        ended = time.monotonic()
        await self.round(began)
        return self.worst_gap(Window(began, ended))

    def forget(self, before: float) -> None:
        self._accounts = [account for account in self._accounts if account.ended >= before]


@asynccontextmanager
async def witnessing(port: int, headers: Mapping[str, str]) -> AsyncIterator[Accounts]:
    """A witness with these headers. Raise `WaitedInVainError` if the mesh does not serve it."""
    testimony = Accounts()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.harm.siege.witness", str(port), json.dumps(headers)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None, "it has a pipe"
    hearing = asyncio.create_task(_hear(process.stdout, testimony))
    try:
        await until(lambda: testimony.is_ready or hearing.done(), "the witness knows its answer", READY_S)
        yield testimony
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)


async def _hear(pipe: asyncio.StreamReader, testimony: Accounts) -> None:
    decoder = msgspec.json.Decoder(Account)
    while text := await pipe.readline():
        testimony.hear(decoder.decode(text))
