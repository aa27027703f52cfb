"""The ways in which attackers send the requests of a row. Those that take many of one send the row's first."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Concatenate

from mesh.directory import directory
from tests.tools.harm.attacks.ground import ATTACKER, Answer, Ground, answer_of
from tests.tools.harm.harm import End
from tests.tools.harm.http import Line, exchange, line

PEERS = (ATTACKER, *(f"127.0.0.{n}" for n in range(3, 6)))
SMALL_BYTES = 4096  # that the kernel of a reader takes who stalls
DRIP_S, MOST_DRIPS = 0.5, 1000
SLOW_S = 25.0  # longer than any client may take to say something
PAUSE_S = 3.0
STAGES = (0, 40, -5, None)  # of a request that is said so far: nothing, a part of its head or body, and all
DONE = (Answer(End.CUT),)  # of attackers whom nobody answers

Run = Callable[[Ground], Awaitable[Sequence[Answer]]]
Way = Callable[Concatenate[Ground, Iterable[bytes], ...], Awaitable[Sequence[Answer]]]


async def shoot(ground: Ground, requests: Iterable[bytes], at_once: int = 4) -> Sequence[Answer]:
    """Each request on a connection of its own."""
    return await ground.send_all(requests, at_once)


async def flood(
    ground: Ground,
    requests: Iterable[bytes],
    count: int,
    num_peers: int = 1,
    at_once: int = 256,
    patience_s: float | None = None,
) -> list[Answer]:
    """As many as there is time for; who is still waiting at the end goes away, as clients do."""
    turns, data = asyncio.Semaphore(at_once), next(iter(requests))

    async def send(number: int) -> Answer:
        async with turns:
            peer = PEERS[number % num_peers]
            answer = answer_of(await exchange(ground.port, data, patience_s or ground.hold_s, peer))
            return Answer(End.CUT) if answer.end is End.HELD else answer

    tasks = [asyncio.create_task(send(number)) for number in range(count)]
    done, left = await asyncio.wait(tasks, timeout=ground.patience_s)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    return [task.result() for task in done]


async def cling(
    ground: Ground,
    requests: Iterable[bytes],
    count: int,
    drip: str = "",
    num_peers: int = len(PEERS),
    hold_s: float = SLOW_S,
) -> list[Answer]:
    """Many connections that begin with the same bytes and then send some more now and then.

    ``hold_s`` 0: as long as the ground says.
    """
    first, lines = next(iter(requests)), list[Line]()
    async with AsyncExitStack() as stack:
        for number in range(count):
            with suppress(OSError):
                lines.append(await stack.enter_async_context(ground.line(PEERS[number % num_peers])))
        held = await asyncio.gather(*(_cling(one, hold_s or ground.hold_s, first, drip.encode()) for one in lines))
    return [*held, *DONE * (count - len(lines))]


async def _cling(opened: Line, hold_s: float, first: bytes, drip: bytes) -> Answer:
    if not await opened.send(first):
        return Answer(End.CUT)
    dripping = asyncio.create_task(_drip(opened, drip))
    try:
        return Answer(End.CUT if await opened.closes(hold_s) else End.HELD)
    finally:
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


async def _drip(opened: Line, drip: bytes) -> None:
    for _ in range(MOST_DRIPS if drip else 0):
        if not await opened.send(drip):
            return
        await asyncio.sleep(DRIP_S)


async def stall(ground: Ground, requests: Iterable[bytes], count: int) -> list[Answer]:
    """Ask, and do not read."""
    data = next(iter(requests))
    async with AsyncExitStack() as stack:
        for _ in range(count):
            with suppress(OSError):
                opened = await stack.enter_async_context(ground.line(receive_bytes=SMALL_BYTES))
                await opened.send(data)
        await asyncio.sleep(ground.hold_s)
    return [Answer(End.HELD)] * count


async def burst(ground: Ground, requests: Iterable[bytes], count: int) -> Sequence[Answer]:
    """So many on one connection, whose answers nobody reads."""
    async with ground.line() as opened:
        sending = asyncio.create_task(opened.send(next(iter(requests)) * count))
        await asyncio.sleep(min(PAUSE_S, ground.hold_s))
        sending.cancel()
    return DONE


async def leave(ground: Ground, requests: Iterable[bytes], count: int) -> Sequence[Answer]:
    """Clients that go away at every stage."""
    data = next(iter(requests))

    async def one(after_s: float) -> Answer:
        async with ground.line() as opened:
            await opened.send(data)
            await opened.closes(after_s)
        return Answer(End.CUT)

    return await asyncio.gather(*(one(0.02 * n) for n in range(count)))


async def half_close(ground: Ground, requests: Iterable[bytes]) -> Sequence[Answer]:
    """Each closes its side: before, in and after a request."""
    whole = next(iter(requests))

    async def one(data: bytes) -> Answer:
        async with ground.line() as opened:
            await opened.send(data)
            opened.half_close()
            return answer_of(await opened.read(ground.patience_s))

    return [await one(whole[:end]) for end in STAGES]


async def throw(
    ground: Ground, requests: Iterable[bytes], lines_each: int = 4, pause_s: float = PAUSE_S
) -> Sequence[Answer]:
    """The same bytes at every TCP port of the mesh, on a few connections that stay open for a while."""
    said = list(requests)
    endpoints = directory(ground.mesh.deployment.topology).values()
    addresses = [address for one in endpoints for address in (one.inbox, one.broadcast)]
    async with AsyncExitStack() as stack:
        for address in addresses * lines_each:
            with suppress(OSError):
                opened = await stack.enter_async_context(line(int(address.rpartition(":")[2]), ATTACKER))
                for data in said:
                    await opened.send(data)
                if not pause_s:
                    opened.close()
        await asyncio.sleep(min(pause_s, ground.hold_s))
    return DONE


WAYS: Mapping[str, Way] = {
    "flood": flood,
    "cling": cling,
    "stall": stall,
    "burst": burst,
    "leave": leave,
    "half_close": half_close,
    "throw": throw,
}
