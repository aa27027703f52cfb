"""Opens what one server is asked with: a client session with its certificates, and the headers of each request."""

import os
import socket
import ssl
from typing import Any, Final

import aiohttp

from mesh.errors import UserError
from mesh.topology.schema import ServerSpec

KEEP_S: Final = 4.0  # a connection that nobody uses: uvicorn closes it after five
TCP_KEEPIDLE_S, TCP_KEEPINTVL_S, TCP_KEEPCNT = 15, 5, 3  # a peer that is gone without a word is noticed after 30 s
NOT_FORWARDED: Final = frozenset({
    "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type", "cookie",
    "expect", "forwarded", "host", "keep-alive", "origin", "proxy-authenticate", "proxy-authorization",
    "proxy-connection", "referer", "te", "trailer", "transfer-encoding", "upgrade", "via", "x-api-key", "x-priority",
    "x-request-id", "x-slo-tpot-ms", "x-slo-ttft-ms", "traceparent", "x-gateway-inference-fairness-id",
    "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip",
})  # fmt: skip
NOT_ANSWERED: Final = frozenset({
    "access-control-allow-credentials", "access-control-allow-origin", "alt-svc", "connection", "content-encoding",
    "content-length", "date", "keep-alive", "proxy-authenticate", "proxy-connection", "server", "set-cookie",
    "strict-transport-security", "te", "trailer", "traceparent", "transfer-encoding", "upgrade", "www-authenticate",
    "x-request-id",
})  # fmt: skip


def open_session(server: ServerSpec, key: str | None) -> aiohttp.ClientSession:
    """Make a session without cookies, proxies and compression. Raise `UserError` if a certificate is not there."""
    connector = aiohttp.TCPConnector(
        limit=0,
        keepalive_timeout=KEEP_S,
        ssl=_certificates(server),
        ttl_dns_cache=10,
        socket_factory=_socket,
    )
    authorization = {} if key is None else {"authorization": f"Bearer {key}"}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=server.connect_timeout_s)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"accept-encoding": "identity", **authorization, **server.headers},
        skip_auto_headers=("User-Agent", "Accept"),
    )


def key_of(engine: str, server: ServerSpec) -> str | None:
    """Read the key that the server wants. Raise `UserError` if it is not where the topology says."""
    if server.api_key_env is not None:
        key = os.environ.get(server.api_key_env, "").strip()
        if not key:
            raise UserError(f"{engine}: api_key_env = {server.api_key_env!r} is not set for this process")
        return key
    if server.api_key_file is None:
        return None
    try:
        return server.api_key_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{engine}: api_key_file = {server.api_key_file} cannot be read ({error})") from None


def _certificates(server: ServerSpec) -> ssl.SSLContext | bool:
    if server.tls_insecure:
        return False
    if server.tls_ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(server.tls_ca))
    except (OSError, ssl.SSLError) as error:
        raise UserError(f"tls_ca = {server.tls_ca} cannot be used ({error})") from None


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """One that notices when its peer is gone."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", TCP_KEEPIDLE_S),
        ("TCP_KEEPINTVL", TCP_KEEPINTVL_S),
        ("TCP_KEEPCNT", TCP_KEEPCNT),
    ):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
