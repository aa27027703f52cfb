"""An honest client in a process of its own: it asks all the time, and says on its output what came of it.

    python -m bench.harm.siege.witness PORT HEADERS

One account in JSON for each request; the first says that the text of the stream is known: from then on each stream must
be the same. It ends when its input does. HEADERS are those that it sends, as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.harm.chaos.verdict import num_wrong
from bench.harm.clients import Ask, Client
from bench.harm.deployment import MODEL
from bench.harm.http import exchange, request
from bench.harm.siege.testimony import READY, Account

PATIENCE_S = 60.0
PAUSE_S = 0.1
PROMPT = tuple(range(65, 91))
STREAM = Ask(PROMPT, max_tokens=200, seed=1, temperature=0.0)
WHOLE = Ask(PROMPT[:8], max_tokens=8, seed=2, temperature=0.0, stream=False)
CHAT = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}
FORM = {"prompt": "Yes or no?", "max_tokens": 4, "structured_outputs": {"choice": ["yes", "no"]}}
TEXT = {"prompt": "Once upon a time"}


@dataclass(frozen=True, slots=True)
class Witness:
    port: int
    headers: Mapping[str, str]

    async def testify(self) -> None:
        client = await self._see(READY, STREAM)
        if not client.is_whole:
            raise RuntimeError(f"the mesh does not answer before anything happens to it: {client.problem}")
        known = client.pieces
        _say(Account(READY, client.sent_at, time.monotonic()))
        kinds: list[Callable[[], Coroutine[Any, Any, Account]]] = [
            lambda: self._complete("stream", STREAM, known),
            lambda: self._complete("answer", WHOLE),
            lambda: self._post("chat", "/v1/chat/completions", CHAT),
            lambda: self._post("form", "/v1/completions", FORM),
            lambda: self._post("tokenize", "/tokenize", TEXT),
        ]
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(_again_and_again(kind)) for kind in kinds]
            await asyncio.to_thread(sys.stdin.read)
            for task in asking:
                task.cancel()

    async def _complete(self, kind: str, ask: Ask, known: list[str] | None = None) -> Account:
        client = await self._see(kind, ask)
        problem = None if client.is_whole else f"status {client.status}: {client.problem or 'it broke off'}"
        if known is not None and (wrong := num_wrong(client.pieces, known, is_whole=client.is_whole)):
            problem = problem or f"{wrong} wrong characters"
        return Account(kind, client.sent_at, time.monotonic(), [at for at, _ in client.arrivals], problem)

    async def _see(self, kind: str, ask: Ask) -> Client:
        client = Client(kind, self.port, ask, extra=self.headers)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await client.run()
        except TimeoutError:
            client.problem = f"no end within {PATIENCE_S:g} s"
        return client

    async def _post(self, kind: str, path: str, fields: Mapping[str, Any]) -> Account:
        began = time.monotonic()
        data = request(self.port, path, json.dumps({"model": MODEL, **fields}).encode(), self.headers)
        reply = await exchange(self.port, data, PATIENCE_S)
        is_whole = reply.status == 200 and not reply.is_closed and not reply.is_late
        said = f"status {reply.status}: {reply.body[:120].decode(errors='replace')}"
        return Account(kind, began, time.monotonic(), problem=None if is_whole else said)


async def _again_and_again(ask: Callable[[], Coroutine[Any, Any, Account]]) -> None:
    while True:
        _say(await ask())
        await asyncio.sleep(PAUSE_S)


def _say(account: Account) -> None:
    print(msgspec.json.encode(account).decode(), flush=True)


def main() -> None:
    port, headers = sys.argv[1:]
    asyncio.run(Witness(int(port), json.loads(headers)).testify())


if __name__ == "__main__":
    main()
