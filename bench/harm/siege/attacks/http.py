"""HTTP that is too much, too slow, malformed or ambiguous, and connections that hold what they take."""

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
BODY = b'{"prompt": "a", "max_tokens": 1}'
LENGTH = b"content-length: %d\r\n" % len(BODY)
LARGE = HEAD + b"content-length: 4000000\r\n\r\n"
SMUGGLING, ADVISORY = "request smuggling", "GHSA-rxc4-3w6r-4v47"
# Methods, forms of URL and versions that nobody uses here.
LINES = (
    "TRACE / HTTP/1.1", "OPTIONS * HTTP/1.1", "DELETE /v1/models HTTP/1.1", "GET http://127.0.0.1/ HTTP/1.1",
    "GET //v1//models HTTP/1.1", "GET /../../etc/passwd HTTP/1.1", "GET /%2e%2e/%00 HTTP/1.1",
    "GET /\u00e9 HTTP/1.1", "HEAD /v1/completions HTTP/1.1", "GET / HTTP/1.0", "GET / HTTP/9.9", "GET /v1/models",
)  # fmt: skip
UPGRADES = (
    b"upgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n",
    b"upgrade: h2c\r\n",
)
HOSTS = ("evil.example", "", "a" * 3000, "127.0.0.1:99999999", "[::1", "x y")
PAGE = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
FORMS = ("text/plain", "application/x-www-form-urlencoded")  # what a browser sends without asking first


def send(*data: Callable[[], bytes] | bytes) -> Run:
    """These bytes; those that are large are made when they are sent."""
    return shoot(lambda _: [one if isinstance(one, bytes) else one() for one in data])


def completions(*headers: dict[str, str]) -> Run:
    return shoot(lambda ground: [ground.completion({"max_tokens": 1}, one) for one in headers])


def compressed(ground: Ground) -> list[bytes]:
    data = gzip.compress(b'{"prompt": "' + b"a" * 2**28)
    return [ground.post(COMPLETIONS, data, {"content-encoding": one}) for one in ("gzip", "br", "deflate, gzip")]


def too_large(ground: Ground) -> list[bytes]:
    """Declared, and in chunks that never say how many come."""
    chunk = b"100000\r\n" + b"a" * MIB + b"\r\n"
    return [ground.post(COMPLETIONS, b"a" * (5 * MIB)), CHUNKED + chunk * 32]


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
    _bad("header-1-mib", send(lambda: GET + b"x: " + b"a" * MIB + b"\r\n\r\n"), ADVISORY, in_short=True),
    _bad("header-name-1-mib", send(lambda: GET + b"a" * MIB + b": x\r\n\r\n"), ADVISORY),
    _bad("headers-450000", send(lambda: GET + b"a: b\r\n" * 450_000 + b"\r\n")),
    _bad(
        "url-12-mib",
        send(lambda: b"GET /v1/models?" + b"a" * 12 * MIB + b" HTTP/1.1\r\nhost: x\r\n\r\n"),
        in_short=True,
    ),
    _bad("method-1-mib", send(lambda: b"A" * MIB + b" / HTTP/1.1\r\n\r\n")),
    _bad("not-http", send(b"\x16\x03\x01" + bytes(range(256)) * 400)),
    _bad("http-2-preface", send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 1000)),
    _bad("two-lengths", send(HEAD + LENGTH + b"content-length: 0\r\n\r\n" + BODY), SMUGGLING),
    _bad(
        "length-and-chunks",
        send(HEAD + LENGTH + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n" + BODY),
        SMUGGLING,
        in_short=True,
    ),
    _bad("chunks-not-last", send(HEAD + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n"), SMUGGLING),
    _bad("length-negative", send(HEAD + b"content-length: -1\r\n\r\n" + BODY)),
    _bad("length-not-a-number", send(HEAD + b"content-length: 0x10\r\n\r\n" + BODY)),
    _bad("length-huge", send(HEAD + b"content-length: 99999999999999999999\r\n\r\n" + BODY)),
    _bad("length-4-gib", send(HEAD + b"content-length: 4294967296\r\n\r\n" + BODY)),
    _bad("chunk-size-huge", send(CHUNKED + b"ffffffffffffffffff\r\nabc")),
    _bad("chunk-extension-1-mib", send(lambda: CHUNKED + b"1;" + b"e" * MIB + b"\r\na\r\n0\r\n\r\n")),
    _bad("header-null", send(GET + b"x: a\x00b\r\n\r\n")),
    _bad("header-bare-line-feed", send(GET + b"x: a\rb\r\n\r\n"), SMUGGLING),
    _bad("connect", send(b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: 127.0.0.1:22\r\n\r\n")),
    _h("methods-odd", send(*(f"{line}\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode() for line in LINES))),
    _h("upgrade", send(*(GET + one + b"connection: upgrade\r\nconnection: close\r\n\r\n" for one in UPGRADES))),
    _h("host-odd", completions(*({"host": host} for host in HOSTS)), "DNS rebinding"),
    _bad("cross-site", completions(*({**PAGE, "content-type": one} for one in FORMS)), "cross-site request forgery"),
    _h("expect-odd", completions({"expect": "100-continue"}, {"expect": "200-ok"})),
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
    _bad("body-too-large", shoot(too_large), in_short=True),
    _h("left-in-the-middle", left_in_the_middle, right=ANY_END, load=32, in_short=True),
)
