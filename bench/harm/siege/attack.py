"""The words that most attacks are made of."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress

from bench.harm.harm import End
from bench.harm.http import Line, exchange
from bench.harm.siege.ground import ATTACKER, COMPLETIONS, Answer, Fields, Ground, answer_of

PEERS = tuple(f"127.0.0.{n}" for n in range(2, 6))
SMALL_BYTES = 4096  # that the kernel of a reader takes who stalls
DRIP_S, MOST_DRIPS = 0.5, 1000
SLOW_S = 25.0  # longer than any client may take to say something

Run = Callable[[Ground], Awaitable[Sequence[Answer]]]
Requests = Callable[[Ground], Iterable[bytes]]


class ImpossibleHereError(RuntimeError):
    """This machine or user does not allow such an attack. The message says why."""


def shoot(requests: Requests, at_once: int = 1) -> Run:
    """Each request on a connection of its own."""
    return lambda ground: ground.send_all(requests(ground), at_once)


def flood(count: int, one: Callable[[Ground], bytes], peers: Sequence[str] = (ATTACKER,), at_once: int = 256) -> Run:
    """As many as there is time for; who is still waiting at the end goes away, as clients do."""

    async def run(ground: Ground) -> list[Answer]:
        turns, data = asyncio.Semaphore(at_once), one(ground)

        async def send(number: int) -> Answer:
            async with turns:
                answer = answer_of(await exchange(ground.port, data, ground.hold_s, peers[number % len(peers)]))
                return Answer(End.CUT) if answer.end is End.HELD else answer

        tasks = [asyncio.create_task(send(number)) for number in range(count)]
        done, left = await asyncio.wait(tasks, timeout=ground.patience_s)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return [task.result() for task in done]

    return run


def cling(
    count: int, first: bytes, drip: bytes = b"", *, peers: Sequence[str] = PEERS, hold_s: float | None = SLOW_S
) -> Run:
    """Many connections that begin with the same bytes and then send some more now and then: how each ends.

    ``hold_s`` None: as long as the ground says.
    """

    async def run(ground: Ground) -> list[Answer]:
        async with AsyncExitStack() as stack:
            lines: list[Line] = []
            for number in range(count):
                with suppress(OSError):
                    lines.append(await stack.enter_async_context(ground.line(peers[number % len(peers)])))
            held = await asyncio.gather(*(_cling(one, hold_s or ground.hold_s, first, drip) for one in lines))
            return [*held, *[Answer(End.CUT)] * (count - len(lines))]

    return run


async def _cling(line: Line, hold_s: float, first: bytes, drip: bytes) -> Answer:
    if not await line.send(first):
        return Answer(End.CUT)
    dripping = asyncio.create_task(_drip(line, drip))
    try:
        return Answer(End.CUT if await line.closes(hold_s) else End.HELD)
    finally:
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


async def _drip(line: Line, drip: bytes) -> None:
    for _ in range(MOST_DRIPS if drip else 0):
        if not await line.send(drip):
            return
        await asyncio.sleep(DRIP_S)


def stall(count: int, fields: Callable[[Ground], Fields], path: str = COMPLETIONS) -> Run:
    """Ask, and do not read."""

    async def run(ground: Ground) -> list[Answer]:
        async with AsyncExitStack() as stack:
            for _ in range(count):
                with suppress(OSError):
                    line = await stack.enter_async_context(ground.line(receive_bytes=SMALL_BYTES))
                    await line.send(ground.post(path, ground.fields(fields(ground))))
            await asyncio.sleep(ground.hold_s)
        return [Answer(End.HELD)] * count

    return run
