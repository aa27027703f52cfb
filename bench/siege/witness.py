"""An honest client in a process of its own: it asks all the time, and says on its output what came of it.

    python -m bench.siege.witness PORT MODEL KNOWN_TOKENS

One account in JSON for each line; the first says that the text of the long answer is known: from then on each long
answer must be the same. It ends when its input does. ``MESHSERVE_API_KEY`` is the key that it shows, if it has one.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.chaos.client import Ask, Client, Visit
from bench.chaos.verdict import num_wrong
from bench.siege.http import exchange, request
from bench.siege.testimony import Account

PATIENCE_S = 60.0
PAUSE_S = 0.1
PART_S = 0.25  # how often the long stream is reported on
PROMPT = tuple(range(65, 91))
KNOWN, READY = "known", "ready"
KEY_VARIABLE = "MESHSERVE_API_KEY"
STREAM = Ask(PROMPT, max_tokens=16, seed=1, temperature=0.0)
WHOLE = Ask(PROMPT[:8], max_tokens=8, seed=2, temperature=0.0, stream=False)


def say(account: Account) -> None:
    sys.stdout.write(msgspec.json.encode(account).decode() + "\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Witness:
    port: int
    model: str
    known_tokens: int
    headers: Mapping[str, str]

    async def testify(self) -> None:
        known = await self._known_text()
        say(Account(READY, time.monotonic(), time.monotonic()))
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(self._again_and_again(one)) for one in self._short_kinds()]
            asking.append(group.create_task(self._again_and_again(lambda: self._compare(known))))
            await asyncio.to_thread(sys.stdin.read)
            for task in asking:
                task.cancel()

    def _short_kinds(self) -> list[Callable[[], Awaitable[None]]]:
        chat = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}
        form = {"prompt": "Yes or no?", "max_tokens": 4, "structured_outputs": {"choice": ["yes", "no"]}}
        return [
            lambda: self._visit("stream", STREAM),
            lambda: self._visit("answer", WHOLE),
            lambda: self._post("chat", "/v1/chat/completions", chat),
            lambda: self._post("form", "/v1/completions", form),
            lambda: self._post("tokenize", "/tokenize", {"prompt": "Once upon a time"}),
        ]

    @staticmethod
    async def _again_and_again(ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            await ask()
            await asyncio.sleep(PAUSE_S)

    async def _visit(self, kind: str, ask: Ask) -> None:
        visit = await self._see(kind, ask)
        say(Account(kind, visit.sent_at, visit.ended_at or time.monotonic(), _times(visit), problem_of(visit)))

    async def _see(self, kind: str, ask: Ask) -> Visit:
        visit = Visit(kind, self.port, ask)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await Client(visit, self.model, self.headers).run()
        except TimeoutError:
            visit.problem = f"no end within {PATIENCE_S:g} s"
        return visit

    async def _post(self, kind: str, path: str, fields: Mapping[str, Any]) -> None:
        began = time.monotonic()
        data = request(self.port, path, json.dumps({"model": self.model, **fields}).encode(), self.headers)
        reply = await exchange(self.port, data, PATIENCE_S)
        is_whole = reply.status == 200 and not reply.is_closed and not reply.is_late
        problem = None if is_whole else f"status {reply.status}: {reply.body[:120].decode(errors='replace')}"
        say(Account(kind, began, time.monotonic(), problem=problem))

    async def _known_text(self) -> tuple[str, ...]:
        visit = await self._see(KNOWN, self._long())
        if not visit.is_whole:
            raise RuntimeError(f"the mesh does not answer before anything happens to it: {visit.problem}")
        return tuple(visit.pieces)

    def _long(self) -> Ask:
        return Ask(PROMPT, self.known_tokens, seed=3, temperature=0.0)

    async def _compare(self, known: tuple[str, ...]) -> None:
        """Once through the long answer, with an account of each part of it."""
        visit = Visit(KNOWN, self.port, self._long(), sent_at=time.monotonic())
        asking = asyncio.create_task(asyncio.wait_for(Client(visit, self.model, self.headers).run(), 10 * PATIENCE_S))
        began, told = visit.sent_at, 0
        while not asking.done():
            await asyncio.wait([asking], timeout=PART_S)
            arrivals = _times(visit)[told:]
            if not asking.done():
                say(Account(KNOWN, began, time.monotonic(), arrivals))
                began, told = (arrivals[-1] if arrivals else began), told + len(arrivals)
        await asyncio.gather(asking, return_exceptions=True)
        wrong = num_wrong(visit.pieces, known, is_whole=visit.is_whole)
        problem = problem_of(visit) or (f"{wrong} wrong characters" if wrong else None)
        say(Account(KNOWN, began, visit.ended_at or time.monotonic(), _times(visit)[told:], problem))


def _times(visit: Visit) -> list[float]:
    return [at for at, _ in visit.arrivals]


def problem_of(visit: Visit) -> str | None:
    return None if visit.is_whole else f"status {visit.status}: {visit.problem or 'it broke off'}"


def main() -> None:
    port, model, known_tokens = sys.argv[1:]
    key = os.environ.get(KEY_VARIABLE)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    asyncio.run(Witness(int(port), model, int(known_tokens), headers).testify())


if __name__ == "__main__":
    main()
