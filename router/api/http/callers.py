"""Works out who sent a request, at the one place where somebody may be turned away."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, Protocol

import msgspec
from starlette.types import Scope

from mesh.access.keys import UNLIMITED, KeyLimits
from router.api.access.rates import Charge, RawHeaders
from router.api.http.browsers import BrowserRules

UNKNOWN: Final = "unknown"
NAMED: Final = "id:"  # begins tenants that a trusted proxy names
FAIRNESS_HEADER: Final = "x-gateway-inference-fairness-id"
IPV6_PREFIX: Final = 64  # bits of an address that one subscriber has to himself
MAX_PROXIES: Final = 16  # that a request may pass
MAX_ADDRESS: Final = 64  # characters
MAX_TENANT: Final = 64  # characters of whom a trusted proxy names

Network = IPv4Network | IPv6Network


class Rights(Protocol):
    """What somebody may do who showed a key."""

    @property
    def key(self) -> str:
        """Return the id of the key."""

    @property
    def limits(self) -> KeyLimits: ...

    def begin(self, num_tokens: int) -> Charge:
        """Charge a request of so many tokens at most. Raise `ApiError` (429) if too much was used."""

    def headers(self) -> RawHeaders:
        """Return what is left, for the answer."""


class Caller(msgspec.Struct, frozen=True):
    """Who sent a request. ``peer``: the address that a request comes from; ``tenant``: whom it is counted for;
    ``rights``: None if open. ``window_s``: of a line of a batch, the seconds that are left for it; None: it is none.
    ``cache_salt``: of its requests (`RequestSpec.cache_salt`).
    """

    peer: str
    tenant: str
    rights: Rights | None = None
    window_s: float | None = None
    cache_salt: str = ""

    @property
    def owner(self) -> str:
        """Return whose what is kept for the caller is: all share that of a mesh that is open to everybody."""
        if self.rights is None:
            return self.tenant if self.tenant.startswith(NAMED) else ""
        return f"{self.rights.key}/{self.tenant}"

    @property
    def limits(self) -> KeyLimits:
        return UNLIMITED if self.rights is None else self.rights.limits

    def may_use(self, service: str) -> bool:
        services = self.limits.services
        return services is None or service in services

    def begin(self, num_tokens: int) -> Charge | None:
        """Reserve what a request may use. None: nobody counts it. Raise `ApiError` (429) if too much was used."""
        return None if self.rights is None else self.rights.begin(num_tokens)


class Callers(Protocol):
    """Who may ask. Asked once for each request."""

    def admit(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        """Raise `ApiError` (401, 403, 429) to turn a request away."""


@lru_cache(maxsize=4096)
def peer_of_address(address: str) -> str:
    """Whom an address is counted for: itself, or the network of an IPv6 subscriber."""
    parsed = _parse(address)
    if parsed is None:
        return address or UNKNOWN
    if isinstance(parsed, IPv6Address) and not parsed.is_loopback:
        return str(ip_network((parsed, IPV6_PREFIX), strict=False))
    return str(parsed)


def _parse(address: str) -> IPv4Address | IPv6Address | None:
    """An address as a socket or a proxy tells it. Some proxies add a port: `192.0.2.1:49152`, `[2001:db8::1]:49152`."""
    if address.startswith("["):
        address = address[1:].partition("]")[0]
    elif address.count(":") == 1:
        address = address.partition(":")[0]
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed


class ClientPeers:
    """Tells a request's peer. ``trusted``: addresses and networks of proxies, whose word for their clients counts."""

    def __init__(self, trusted: Sequence[str] = ()) -> None:
        self._trusted: tuple[Network, ...] = tuple(ip_network(one, strict=False) for one in trusted)

    def trusts(self, address: str) -> bool:
        if not self._trusted:
            return False
        parsed = _parse(address)
        return parsed is not None and any(parsed in network for network in self._trusted)

    def peer_of(self, scope: Scope, headers: Mapping[str, str]) -> str:
        """Behind trusted proxies the last address of ``x-forwarded-for`` that is not one of theirs."""
        client: tuple[str, int] | None = scope.get("client")
        address = client[0] if client else UNKNOWN
        if "x-forwarded-for" not in headers or not self.trusts(address):
            return peer_of_address(address)
        for one in reversed(_forwarded_for(scope)):
            if one and not self.trusts(one):
                return peer_of_address(one)
        return peer_of_address(address)

    def named_tenant(self, scope: Scope, headers: Mapping[str, str]) -> str | None:
        """Whom a trusted proxy says that the request is for."""
        name = headers.get(FAIRNESS_HEADER) if self._trusted else None
        if not name:
            return None
        client: tuple[str, int] | None = scope.get("client")
        return f"{NAMED}{_bounded(name)}" if client and self.trusts(client[0]) else None


def _bounded(name: str) -> str:
    """Return a name of `MAX_TENANT` characters at most, which no other name becomes."""
    if len(name) < MAX_TENANT:
        return name
    digest = blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{name[: MAX_TENANT - len(digest)]}{digest}"


def _forwarded_for(scope: Scope) -> list[str]:
    """The last few. Proxies may add a header of their own to those that a client sent: all count as one list."""
    headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
    named = b",".join(value for name, value in headers if name == b"x-forwarded-for")
    return [one.strip()[:MAX_ADDRESS] for one in named.decode("latin-1").split(",")[-MAX_PROXIES:]]


class CallerCheck:
    """Checks a request as browsers send it, then who sent it. Asked by whatever takes requests in."""

    def __init__(self, rules: BrowserRules, callers: Callers) -> None:
        self._rules = rules
        self._callers = callers

    def admit(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        """Raise `ApiError` to turn a request away."""
        self._rules.check(scope, headers)
        return self._callers.admit(scope, headers)


class OpenCallers:
    """Everybody may ask. Requests are counted for whom a trusted proxy names, or the address that they come from."""

    def __init__(self, peers: ClientPeers) -> None:
        self._peers = peers

    def admit(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        peer = self._peers.peer_of(scope, headers)
        return Caller(peer, self._peers.named_tenant(scope, headers) or peer)


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """Return who was admitted with this request."""
    caller: Caller = scope["state"]["caller"]
    return caller


def limit_headers(scope: Mapping[str, Any]) -> RawHeaders:
    """Return what is left to whoever was admitted, as ASGI wants it; nothing if nobody was, or there are no limits."""
    caller: Caller | None = scope["state"].get("caller")
    return [] if caller is None or caller.rights is None else caller.rights.headers()
