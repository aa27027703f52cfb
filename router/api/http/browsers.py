"""Checks browsers' requests: a page of another site may not use the gateway of whoever looks at it.

Three things keep such pages out. A host name that is not the gateway's is refused, so that a name that an attacker lets
point at the gateway (DNS rebinding) opens nothing. A body must say that it is JSON, which a page may only send to
another site after that site allowed it. And what a browser marks as sent by another site is refused, unless its origin
is listed; then the answer says so (CORS).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesh.topology.checks.access import is_loopback
from router.api.errors import ApiError
from router.api.http.headers import headers_of

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
MAX_AGE_S: Final = 600
EXPOSED: Final = (
    "x-request-id, retry-after, x-meshserve-prefill, x-meshserve-decode, x-meshserve-rule, x-meshserve-queued-ms, "
    "x-meshserve-predicted-ttft-ms, traceparent"
)
_CROSS: Final = ("cross-site", "same-site")
_JSON: Final = "application/json"
_FORM: Final = "multipart/form-data"
UPLOAD_PATH: Final = "/v1/files"  # the only one that takes a form


@dataclass(frozen=True, slots=True)
class BrowserRules:
    """Rules for requests that browsers send. ``hosts``: names that the gateway answers to, in lower case, without
    ports; None: any. ``origins``: see CORS.
    """

    hosts: frozenset[str] | None
    origins: frozenset[str] = frozenset()

    @classmethod
    def of(cls, address: str, hosts: Sequence[str], origins: Sequence[str]) -> "BrowserRules":
        """Make the rules: loopback allows its own names only, unless others are listed; elsewhere any name is allowed,
        unless some are.
        """
        names = frozenset(name.lower() for name in hosts)
        if names:
            names |= {*LOOPBACK_NAMES, address.lower()}
        elif is_loopback(address):
            names = frozenset((*LOOPBACK_NAMES, address.lower(), f"[{address.lower()}]"))
        return cls(names or None, frozenset(origin.lower().rstrip("/") for origin in origins))

    def check(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Raise `ApiError`: 421 (another host name), 403 (a page of another site), 415 (a body that is no JSON)."""
        self._check_host(headers.get("host", ""))
        if "sec-fetch-site" in headers and headers["sec-fetch-site"] in _CROSS and not self.allows(headers):
            message = "Pages of other sites may not use this gateway; cors_origins of the topology lists those that may"
            raise ApiError(403, message, code="cross_site")
        if scope["method"] == "POST" and not self._is_upload(scope, headers):
            _check_content_type(headers.get("content-type", ""))

    def _is_upload(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        """Whether it uploads a file, and no page of another site could have sent it: those can send forms unasked, but
        say where they come from, and show no key.
        """
        if scope.get("path") != UPLOAD_PATH or not headers.get("content-type", "").lower().startswith(_FORM):
            return False
        is_own = headers.get("sec-fetch-site") == "same-origin" or self.allows(headers)
        return "origin" not in headers or is_own or "authorization" in headers

    def _check_host(self, host: str) -> None:
        if self.hosts is None:
            return
        name = host.lower()
        if name in self.hosts or _without_port(name) in self.hosts:
            return
        message = f"This gateway does not answer to the host name {host[:64]!r}; allowed_hosts lists those that it does"
        raise ApiError(421, message, code="wrong_host")

    def allows(self, headers: Mapping[str, str]) -> bool:
        """Return whether the origin of a request is listed."""
        origin = headers.get("origin", "").lower()
        return bool(self.origins) and (origin in self.origins or ("*" in self.origins and bool(origin)))


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _check_content_type(given: str) -> None:
    kind = given.partition(";")[0].strip().lower()
    if kind == _JSON or (kind.startswith("application/") and kind.endswith("+json")):
        return
    message = f"content-type: must be {_JSON}, not {kind[:64]!r}; with curl: -H 'content-type: {_JSON}'"
    raise ApiError(415, message, code="unsupported_media_type")


def _marks(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """On answers that a listed site may read."""
    return [
        (b"access-control-allow-origin", headers["origin"].encode("latin-1")),
        (b"vary", b"origin"),
        (b"access-control-expose-headers", EXPOSED.encode()),
    ]


def _preflight(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """What a browser asks before it lets a listed site send a request."""
    wanted = headers.get("access-control-request-headers", "content-type")[:1024]
    return [
        *_marks(headers),
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", wanted.encode("latin-1")),
        (b"access-control-max-age", str(MAX_AGE_S).encode()),
    ]


def _marking(send: Send, marks: Sequence[tuple[bytes, bytes]]) -> Send:
    """``send``, with these headers on the answer."""

    async def send_marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *marks]}
        await send(message)

    return send_marked


class CrossOrigin:
    """The layer in front of all others that lets pages of listed sites in (CORS)."""

    def __init__(self, app: ASGIApp, rules: BrowserRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._rules.origins and self._rules.allows(headers := headers_of(scope)):
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await send({"type": "http.response.start", "status": 204, "headers": _preflight(headers)})
                await send({"type": "http.response.body", "body": b""})
                return
            send = _marking(send, _marks(headers))
        await self._app(scope, receive, send)
