"""An honest client in a process of its own: it asks all the time, and says on its output what came of it.

    python -m bench.harm.siege.witness PORT MODEL HEADERS

One account in JSON for each line; the first says that the text of the long answer is known: from then on each long
answer must be the same. It ends when its input does. HEADERS are those that it sends, as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.harm.chaos.verdict import num_wrong
from bench.harm.clients import Ask, Client, Visit
from bench.harm.http import exchange, request
from bench.harm.siege.testimony import KNOWN, READY, Account

PATIENCE_S = 60.0
PAUSE_S = 0.1
KNOWN_TOKENS = 1500  # of the long answer that is compared
PART_S = 0.25  # how often the long stream is reported on
PROMPT = tuple(range(65, 91))
STREAM = Ask(PROMPT, max_tokens=16, seed=1, temperature=0.0)
WHOLE = Ask(PROMPT[:8], max_tokens=8, seed=2, temperature=0.0, stream=False)
CHAT = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}
FORM = {"prompt": "Yes or no?", "max_tokens": 4, "structured_outputs": {"choice": ["yes", "no"]}}


def say(kind: str, began: float, ended: float | None, arrivals: list[float], problem: str | None = None) -> None:
    account = Account(kind, began, time.monotonic() if ended is None else ended, arrivals, problem)
    print(msgspec.json.encode(account).decode(), flush=True)


@dataclass(frozen=True, slots=True)
class Witness:
    port: int
    model: str
    headers: Mapping[str, str]

    async def testify(self) -> None:
        known = await self._known_text()
        say(READY, time.monotonic(), None, [])
        kinds: list[Callable[[], Awaitable[None]]] = [
            lambda: self._visit("stream", STREAM),
            lambda: self._visit("answer", WHOLE),
            lambda: self._post("chat", "/v1/chat/completions", CHAT),
            lambda: self._post("form", "/v1/completions", FORM),
            lambda: self._post("tokenize", "/tokenize", {"prompt": "Once upon a time"}),
            lambda: self._compare(known),
        ]
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(_again_and_again(kind)) for kind in kinds]
            await asyncio.to_thread(sys.stdin.read)
            for task in asking:
                task.cancel()

    async def _visit(self, kind: str, ask: Ask) -> None:
        visit = await self._see(Visit(kind, self.port, ask), PATIENCE_S)
        say(kind, visit.sent_at, visit.ended_at, _times(visit), _problem(visit))

    async def _see(self, visit: Visit, patience_s: float) -> Visit:
        try:
            async with asyncio.timeout(patience_s):
                await Client(visit, self.model, self.headers).run()
        except TimeoutError:
            visit.problem = f"no end within {patience_s:g} s"
        return visit

    async def _post(self, kind: str, path: str, fields: Mapping[str, Any]) -> None:
        began = time.monotonic()
        data = request(self.port, path, json.dumps({"model": self.model, **fields}).encode(), self.headers)
        reply = await exchange(self.port, data, PATIENCE_S)
        is_whole = reply.status == 200 and not reply.is_closed and not reply.is_late
        said = f"status {reply.status}: {reply.body[:120].decode(errors='replace')}"
        say(kind, began, None, [], None if is_whole else said)

    async def _known_text(self) -> tuple[str, ...]:
        visit = await self._see(self._long(), PATIENCE_S)
        if not visit.is_whole:
            raise RuntimeError(f"the mesh does not answer before anything happens to it: {visit.problem}")
        return tuple(visit.pieces)

    def _long(self) -> Visit:
        ask = Ask(PROMPT, KNOWN_TOKENS, seed=3, temperature=0.0)
        return Visit(KNOWN, self.port, ask, sent_at=time.monotonic())

    async def _compare(self, known: tuple[str, ...]) -> None:
        """Once through the long answer, with an account of each part of it."""
        visit = self._long()
        asking = asyncio.create_task(self._see(visit, 10 * PATIENCE_S))
        began, told = visit.sent_at, 0
        while not asking.done():
            await asyncio.wait([asking], timeout=PART_S)
            arrivals = _times(visit)[told:]
            if not asking.done():
                say(KNOWN, began, None, arrivals)
                began, told = (arrivals[-1] if arrivals else began), told + len(arrivals)
        wrong = num_wrong(visit.pieces, known, is_whole=visit.is_whole)
        problem = _problem(visit) or (f"{wrong} wrong characters" if wrong else None)
        say(KNOWN, began, visit.ended_at, _times(visit)[told:], problem)


async def _again_and_again(ask: Callable[[], Awaitable[None]]) -> None:
    while True:
        await ask()
        await asyncio.sleep(PAUSE_S)


def _times(visit: Visit) -> list[float]:
    return [at for at, _ in visit.arrivals]


def _problem(visit: Visit) -> str | None:
    return None if visit.is_whole else f"status {visit.status}: {visit.problem or 'it broke off'}"


def main() -> None:
    port, model, headers = sys.argv[1:]
    asyncio.run(Witness(int(port), model, json.loads(headers)).testify())


if __name__ == "__main__":
    main()
