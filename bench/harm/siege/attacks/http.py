"""HTTP that is too slow or never read, and connections that hold what they take."""

import asyncio
import gzip
import json
from collections.abc import Callable, Sequence
from functools import partial

from bench.harm.harm import ANY_END, TURNED_AWAY, End, Harm
from bench.harm.http import request
from bench.harm.siege.attack import Run, cling, shoot
from bench.harm.siege.ground import ATTACKER, COMPLETIONS, Answer, Ground, answer_of

MIB = 2**20
GET = b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n"
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
LARGE = HEAD + b"content-length: 4000000\r\n\r\n"


def compressed(ground: Ground) -> list[bytes]:
    data = gzip.compress(b'{"prompt": "' + b"a" * 2**28)
    return [ground.post(COMPLETIONS, data, {"content-encoding": one}) for one in ("gzip", "br", "deflate, gzip")]


async def half_closed(ground: Ground) -> Sequence[Answer]:
    """It has said all, and closes its side: before, in and after a request."""
    whole = ground.completion({"max_tokens": 2})

    async def one(data: bytes) -> Answer:
        async with ground.line() as line:
            await line.send(data)
            line.half_close()
            return answer_of(await line.read(ground.patience_s))

    return [await one(data) for data in (b"", whole[:40], whole[:-5], whole)]


def burst(one: Callable[[Ground], bytes], count: int) -> Run:
    """So many requests on one connection, whose answers nobody reads."""

    async def run(ground: Ground) -> Sequence[Answer]:
        async with ground.line() as line:
            sending = asyncio.create_task(line.send(one(ground) * count))
            await asyncio.sleep(min(3.0, ground.hold_s))
            sending.cancel()
        return [Answer(End.CUT)]

    return run


def kept_alive(ground: Ground) -> bytes:
    body = json.dumps(ground.fields({"max_tokens": 1})).encode()
    return request(ground.port, COMPLETIONS, body, {"connection": "keep-alive"})


async def left_in_the_middle(ground: Ground) -> Sequence[Answer]:
    """Clients that go away at every stage."""
    whole = ground.completion({"max_tokens": 64, "stream": True, "ignore_eos": True})

    async def leave(after_s: float) -> Answer:
        async with ground.line() as line:
            await line.send(whole)
            await line.closes(after_s)
        return Answer(End.CUT)

    return await asyncio.gather(*(leave(0.02 * n) for n in range(50)))


_h = partial(Harm, "http")
_bad = partial(Harm, "http", right=TURNED_AWAY)

ATTACKS = (
    _bad("slow-headers", cling(400, b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n", b"a: b\r\n"), "slowloris"),
    _bad("half-sent", cling(2000, b"POST /v1/compl")),
    _h("half-sent-fast", cling(400, b"POST /v1/compl", hold_s=None), right=ANY_END, in_short=True),
    _bad("no-body", cling(300, LARGE, peers=(ATTACKER,))),
    _h("no-body-renewed", cling(300, LARGE, hold_s=None), right=ANY_END, in_short=True),
    _bad("slow-body", cling(300, HEAD + b'content-length: 1000000\r\n\r\n{"prompt": "', b"a"), "R-U-Dead-Yet"),
    _bad("drip-of-chunks", cling(300, CHUNKED, b"1\r\na\r\n")),
    _h("idle", cling(2000, b"", hold_s=None), right=ANY_END),
    _h("half-closed", half_closed),
    _h("pipelined", burst(lambda _: GET + b"\r\n", 60_000), load=16),
    _h("pipelined-completions", burst(kept_alive, 2000), right=ANY_END, load=64),
    _bad("compressed", shoot(compressed), "decompression bomb"),
    _h("left-in-the-middle", left_in_the_middle, right=ANY_END, load=32, in_short=True),
)
