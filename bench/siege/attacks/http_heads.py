"""Heads of HTTP requests: too much, too many, malformed, or ambiguous."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench.siege.answers import LIKE_ANYONE, TURNED_AWAY, Answer, End
from bench.siege.attack import Family, attack
from bench.siege.ground import COMPLETIONS, Ground
from bench.siege.http import request

MIB: Final = 2**20
HEAD: Final = b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
BODY: Final = b'{"prompt": "a", "max_tokens": 1}'
LENGTH: Final = b"content-length: %d\r\n" % len(BODY)

# By name: the source, and bytes for which nothing but a refusal is right.
REFUSED: Final[Mapping[str, tuple[str, Callable[[], bytes]]]] = {
    "header-1-mib": (
        "GHSA-rxc4-3w6r-4v47",
        lambda: b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx: " + b"a" * MIB + b"\r\n\r\n",
    ),
    "header-name-1-mib": ("GHSA-rxc4-3w6r-4v47", lambda: b"GET /v1/models HTTP/1.1\r\n" + b"a" * MIB + b": x\r\n\r\n"),
    "headers-450000": ("", lambda: b"GET /v1/models HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 450_000 + b"\r\n"),
    "url-12-mib": ("", lambda: b"GET /v1/models?" + b"a" * 12 * MIB + b" HTTP/1.1\r\nhost: x\r\n\r\n"),
    "method-1-mib": ("", lambda: b"A" * MIB + b" / HTTP/1.1\r\n\r\n"),
    "not-http": ("", lambda: b"\x16\x03\x01" + bytes(range(256)) * 400),
    "http-2-preface": ("", lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 1000),
    "two-lengths": ("request smuggling", lambda: HEAD + LENGTH + b"content-length: 0\r\n\r\n" + BODY),
    "length-and-chunks": (
        "request smuggling",
        lambda: HEAD + LENGTH + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n" + BODY,
    ),
    "chunks-not-last": ("request smuggling", lambda: HEAD + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
    "length-negative": ("", lambda: HEAD + b"content-length: -1\r\n\r\n" + BODY),
    "length-not-a-number": ("", lambda: HEAD + b"content-length: 0x10\r\n\r\n" + BODY),
    "length-huge": ("", lambda: HEAD + b"content-length: 99999999999999999999\r\n\r\n" + BODY),
    "length-4-gib": ("", lambda: HEAD + b"content-length: 4294967296\r\n\r\n" + BODY),
    "chunk-size-huge": ("", lambda: HEAD + b"transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc"),
    "chunk-extension-1-mib": (
        "",
        lambda: HEAD + b"transfer-encoding: chunked\r\n\r\n1;" + b"e" * MIB + b"\r\na\r\n0\r\n\r\n",
    ),
    "header-null": ("", lambda: b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx: a\x00b\r\n\r\n"),
    "header-bare-line-feed": ("request smuggling", lambda: b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx: a\rb\r\n\r\n"),
    "connect": ("", lambda: b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: 127.0.0.1:22\r\n\r\n"),
}


def _add_refused(name: str, source: str, data: Callable[[], bytes]) -> None:
    @attack(
        name, Family.HTTP, source, right=TURNED_AWAY, fast=name in ("header-1-mib", "length-and-chunks", "url-12-mib")
    )
    async def send(ground: Ground) -> Sequence[Answer]:
        return [await ground.send(data())]


for _name, (_source, _data) in REFUSED.items():
    _add_refused(_name, _source, _data)


@attack("methods-odd", Family.HTTP, right=LIKE_ANYONE)
async def methods(ground: Ground) -> Sequence[Answer]:
    """Methods, forms of URL and versions that nobody uses here."""
    lines = (
        "TRACE / HTTP/1.1", "OPTIONS * HTTP/1.1", "DELETE /v1/models HTTP/1.1", "GET http://127.0.0.1/ HTTP/1.1",
        "GET //v1//models HTTP/1.1", "GET /../../etc/passwd HTTP/1.1", "GET /%2e%2e/%00 HTTP/1.1",
        "GET /\u00e9 HTTP/1.1", "HEAD /v1/completions HTTP/1.1", "GET / HTTP/1.0", "GET / HTTP/9.9", "GET /v1/models",
    )  # fmt: skip
    return [await ground.send(f"{line}\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode()) for line in lines]


@attack("upgrade", Family.HTTP)
async def upgrade(ground: Ground) -> Sequence[Answer]:
    """WebSocket and HTTP/2 in clear text are not spoken."""
    socket_key = b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
    upgrades = (
        b"upgrade: websocket\r\nconnection: upgrade\r\n" + socket_key,
        b"upgrade: h2c\r\nconnection: upgrade\r\n",
    )
    tail = b"connection: close\r\n\r\n"
    return [await ground.send(b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n" + one + tail) for one in upgrades]


@attack("host-odd", Family.HTTP, "DNS rebinding", right=LIKE_ANYONE)
async def host_odd(ground: Ground) -> Sequence[Answer]:
    hosts = ("evil.example", "", "a" * 3000, "127.0.0.1:99999999", "[::1", "x y")
    return [await ground.complete({}, {"host": host}) for host in hosts]


@attack("cross-site", Family.HTTP, "cross-site request forgery", right=frozenset({End.REFUSED, End.CUT}))
async def cross_site(ground: Ground) -> Sequence[Answer]:
    """What a browser sends for a page of somebody else without asking first."""
    page = {"origin": "https://evil.example", "sec-fetch-site": "cross-site", "content-type": "text/plain"}
    form = {**page, "content-type": "application/x-www-form-urlencoded"}
    return [await ground.complete({}, page), await ground.complete({}, form)]


@attack("expect-odd", Family.HTTP)
async def expect_odd(ground: Ground) -> Sequence[Answer]:
    data = json.dumps(ground.completion({"max_tokens": 1})).encode()
    return [
        await ground.send(request(ground.port, COMPLETIONS, data, {"expect": what}))
        for what in ("100-continue", "200-ok")
    ]
