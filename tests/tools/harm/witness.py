"""An honest client in a process of its own: it asks all the time, and says on its output what came of it.

    python -m tests.tools.harm.witness PORT HEADERS

One account in JSON for each request; the first says that the text of the stream is known: from then on each stream must
be the same. It ends when its input does. HEADERS are those that it sends, as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.tools.harm.clients import Ask, Client
from tests.tools.harm.http import exchange, request
from tests.tools.harm.meshes import MODEL
from tests.tools.harm.running import WaitedInVainError, until
from tests.tools.harm.testimony import Account, Accounts, Fate, Window, account_of

READY = "ready"
READY_S, ROUND_S = 120.0, 90.0
PATIENCE_S = 60.0
PAUSE_S = 0.1
PROMPT = tuple(range(65, 91))
ASKS = {
    "stream": Ask(PROMPT, max_tokens=200, seed=1, temperature=0.0),
    "answer": Ask(PROMPT[:8], max_tokens=8, seed=2, temperature=0.0, stream=False),
}
POSTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}),
    "form": (
        "/v1/completions",
        {"prompt": "Yes or no?", "max_tokens": 4, "structured_outputs": {"choice": ["yes", "no"]}},
    ),
    "tokenize": ("/tokenize", {"prompt": "Once upon a time"}),
}
KINDS = ASKS.keys() | POSTS.keys()


@dataclass(frozen=True, slots=True)
class Witness:
    port: int
    headers: Mapping[str, str]
    known: dict[str, list[str]] = field(default_factory=dict)

    async def testify(self) -> None:
        first = await self._ask(READY, ASKS["stream"])
        if first.problem:
            raise RuntimeError(f"the mesh does not answer before anything happens to it: {first.problem}")
        self.known["stream"] = self.known[READY]
        _say(first)
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(self._again_and_again(kind)) for kind in KINDS]
            await asyncio.to_thread(sys.stdin.read)
            for task in asking:
                task.cancel()

    async def _again_and_again(self, kind: str) -> None:
        while True:
            _say(await (self._ask(kind, ASKS[kind]) if kind in ASKS else self._post(kind, *POSTS[kind])))
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, kind: str, ask: Ask) -> Account:
        """The first answer of a kind tells what all others are to be."""
        client = Client(kind, self.port, ask, extra=self.headers)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await client.run()
        except TimeoutError:
            client.problem = f"no end within {PATIENCE_S:g} s"
        account = account_of(client, self.known.setdefault(kind, client.pieces))
        problem = f"refused with {client.status}" if account.fate is Fate.REFUSED else account.problem
        moments = [account.began, *client.arrivals, account.ended]
        return msgspec.structs.replace(account, moments=moments, problem=problem)

    async def _post(self, kind: str, path: str, fields: Mapping[str, Any]) -> Account:
        began = time.monotonic()
        data = request(self.port, path, json.dumps({"model": MODEL, **fields}).encode(), self.headers)
        reply = await exchange(self.port, data, PATIENCE_S)
        ended, is_whole = time.monotonic(), reply.status == 200 and not reply.is_closed and not reply.is_late
        said = f"{kind}: status {reply.status}: {reply.body[:120].decode(errors='replace')}"
        fate = Fate.WHOLE if is_whole else Fate.FAILED
        return Account(kind, began, ended, [began, ended], fate, problem=None if is_whole else said)


def _say(account: Account) -> None:
    print(msgspec.json.encode(account).decode(), flush=True)


# --- who listens to it ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def witnessing(port: int, headers: Mapping[str, str]) -> AsyncIterator[Accounts]:
    """A witness with these headers. Raise `WaitedInVainError` if the mesh does not serve it."""
    testimony = Accounts()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.tools.harm.witness", str(port), json.dumps(headers)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None, "it has a pipe"
    hearing = asyncio.create_task(_hear(process.stdout, testimony))
    try:
        await until(lambda: testimony.kinds_since(0.0) or hearing.done(), "the witness knows its answer", READY_S)
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


async def has_round(testimony: Accounts, since: float) -> bool:
    """Return once a request of each kind that began after that moment is over; False: some are not in time."""
    with suppress(WaitedInVainError):
        await until(lambda: testimony.kinds_since(since) >= KINDS, "a round of the witness", ROUND_S)
        return True
    return False


async def calm_gap_s(testimony: Accounts, seconds: float) -> float:
    """The worst gap while nothing happens, or what the caller does."""
    began = time.monotonic()
    await asyncio.sleep(seconds)
    ended = time.monotonic()
    await has_round(testimony, began)
    return testimony.summary(Window(began, ended)).gap_s


if __name__ == "__main__":
    asyncio.run(Witness(int(sys.argv[1]), json.loads(sys.argv[2])).testify())
