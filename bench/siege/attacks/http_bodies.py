"""Connections that hold what they take: slow, idle, half-closed, dripping, or with bodies that grow."""

import asyncio
import gzip
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from bench.siege.answers import ANY_END, LIKE_ANYONE, TURNED_AWAY, Answer, End, answer_of
from bench.siege.attack import Family, attack
from bench.siege.attacks.http_heads import HEAD
from bench.siege.ground import ATTACKER, COMPLETIONS, Ground
from bench.siege.http import Line, request

PEERS = tuple(f"127.0.0.{n}" for n in range(2, 6))
DRIP_S, MOST_DRIPS = 0.5, 1000
SLOW_S = 25.0  # longer than any client may take to say something
CLOSED = frozenset({End.REFUSED, End.CUT})


async def cling(
    ground: Ground,
    count: int,
    first: bytes,
    drip: bytes = b"",
    *,
    peers: Sequence[str] = PEERS,
    hold_s: float = SLOW_S,
) -> list[Answer]:
    """Many connections that begin with the same bytes and then send some more now and then: how each ends."""
    async with AsyncExitStack() as stack:
        lines: list[Line] = []
        for number in range(count):
            with suppress(OSError):
                lines.append(await stack.enter_async_context(ground.line(peers[number % len(peers)])))
        ends = [Answer(End.CUT)] * (count - len(lines))
        return ends + list(await asyncio.gather(*(_cling(one, hold_s, first, drip) for one in lines)))


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


@attack("slow-headers", Family.HTTP, "slowloris", right=CLOSED)
async def slow_headers(ground: Ground) -> Sequence[Answer]:
    """Never a whole head: one field in half a second."""
    return await cling(ground, 400, b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n", b"a: b\r\n")


@attack("half-sent", Family.HTTP, right=CLOSED)
async def half_sent(ground: Ground) -> Sequence[Answer]:
    return await cling(ground, 2000, b"POST /v1/compl")


@attack("half-sent-fast", Family.HTTP, right=ANY_END, fast=True)
async def half_sent_fast(ground: Ground) -> Sequence[Answer]:
    """For as long as the short form has time: nobody else may notice."""
    return await cling(ground, 400, b"POST /v1/compl", hold_s=ground.hold_s)


@attack("no-body", Family.HTTP, right=CLOSED)
async def no_body(ground: Ground) -> Sequence[Answer]:
    """Heads of 300 large bodies of which nothing comes."""
    return await cling(ground, 300, HEAD + b"content-length: 4000000\r\n\r\n", peers=(ATTACKER,))


@attack("no-body-renewed", Family.HTTP, right=ANY_END, fast=True)
async def no_body_renewed(ground: Ground) -> Sequence[Answer]:
    """As often as they are closed they are opened again."""
    return await cling(ground, 300, HEAD + b"content-length: 4000000\r\n\r\n", hold_s=ground.hold_s)


@attack("slow-body", Family.HTTP, "R-U-Dead-Yet", right=CLOSED)
async def slow_body(ground: Ground) -> Sequence[Answer]:
    return await cling(ground, 300, HEAD + b'content-length: 1000000\r\n\r\n{"prompt": "', b"a")


@attack("drip-of-chunks", Family.HTTP, right=CLOSED)
async def drip_of_chunks(ground: Ground) -> Sequence[Answer]:
    return await cling(ground, 300, HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n")


@attack("idle", Family.HTTP, right=ANY_END)
async def idle(ground: Ground) -> Sequence[Answer]:
    """Connections that say nothing."""
    return await cling(ground, 2000, b"", hold_s=ground.hold_s)


@attack("half-closed", Family.HTTP, right=LIKE_ANYONE)
async def half_closed(ground: Ground) -> Sequence[Answer]:
    """It has said all, and closes its side: before, in and after a request."""
    body = json.dumps(ground.completion({"max_tokens": 2})).encode()
    whole = request(ground.port, COMPLETIONS, body)

    async def one(data: bytes) -> Answer:
        async with ground.line() as line:
            await line.send(data)
            line.half_close()
            return answer_of(await line.read(ground.patience_s))

    return [await one(data) for data in (b"", whole[:40], whole[:-5], whole)]


@attack("pipelined", Family.HTTP, right=LIKE_ANYONE, load=16)
async def pipelined(ground: Ground) -> Sequence[Answer]:
    """Thousands of requests on one connection, whose answers nobody reads."""
    one = b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    return [await _burst(ground, one * 60_000)]


@attack("pipelined-completions", Family.HTTP, right=ANY_END, load=64)
async def pipelined_completions(ground: Ground) -> Sequence[Answer]:
    body = json.dumps(ground.completion({"max_tokens": 1})).encode()
    return [await _burst(ground, request(ground.port, COMPLETIONS, body, {"connection": "keep-alive"}) * 2000)]


async def _burst(ground: Ground, data: bytes) -> Answer:
    async with ground.line() as line:
        sending = asyncio.create_task(line.send(data))
        await asyncio.sleep(min(3.0, ground.hold_s))
        sending.cancel()
        return Answer(End.CUT)


@attack("compressed", Family.HTTP, "decompression bomb", right=TURNED_AWAY)
async def compressed(ground: Ground) -> Sequence[Answer]:
    data = gzip.compress(b'{"prompt": "' + b"a" * 2**28)
    return [
        await ground.post(COMPLETIONS, data, {"content-encoding": coding}) for coding in ("gzip", "br", "deflate, gzip")
    ]


@attack("body-too-large", Family.HTTP, right=TURNED_AWAY, fast=True)
async def body_too_large(ground: Ground) -> Sequence[Answer]:
    """Declared, and in chunks that never say how many come."""
    chunk = b"100000\r\n" + b"a" * 2**20 + b"\r\n"
    return [
        await ground.post(COMPLETIONS, b"a" * (5 * 2**20)),
        await ground.send(HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunk * 32),
    ]


@attack("left-in-the-middle", Family.HTTP, right=ANY_END, load=32, fast=True)
async def left_in_the_middle(ground: Ground) -> Sequence[Answer]:
    """Clients that go away at every stage."""
    body = json.dumps(ground.completion({"max_tokens": 64, "stream": True, "ignore_eos": True})).encode()
    whole = request(ground.port, COMPLETIONS, body)

    async def leave(after_s: float) -> Answer:
        async with ground.line() as line:
            await line.send(whole)
            await line.closes(after_s)
        return Answer(End.CUT)

    return list(await asyncio.gather(*(leave(0.02 * n) for n in range(50))))
