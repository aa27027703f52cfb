"""Admission by access keys: whoever shows a key of the file may ask, as far as the key allows."""

from collections.abc import Callable, Mapping
from typing import Final

from starlette.types import Scope

from mesh.access.keys import KeyLimits
from mesh.clock import Clock
from router.api.access.keyring import HeldKey, Keyring
from router.api.access.rates import Charge, RawHeaders
from router.api.errors import not_allowed, not_known
from router.api.http.callers import Caller, ClientPeers

PROBES: Final = frozenset({"/health", "/live"})
PAGE: Final = "/ui"  # its files hold no secrets; what it shows needs the key of whoever looks
ADMIN_PATHS: Final = (
    "/metrics", "/mesh/", "/docs", "/openapi.json", "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
)  # fmt: skip


class KeyRights:
    """What one key allows in this gateway, one of ``num_gateways``."""

    __slots__ = ("clock", "held", "key", "limits", "num_gateways")

    def __init__(self, held: HeldKey, num_gateways: Callable[[], int], clock: Clock) -> None:
        self.held = held
        self.key = held.key.id
        self.limits: KeyLimits = held.limits
        self.num_gateways = num_gateways
        self.clock = clock

    def __repr__(self) -> str:
        return f"<KeyRights {self.held.key!r}>"

    def begin(self, num_tokens: int) -> Charge:
        """Charge a request of so many tokens at most. Raise `ApiError` (429) if the key has used what it may."""
        self.held.meter.begin(self.limits, num_tokens, self.num_gateways(), self.clock.now())
        return Charge(self.held.meter, num_tokens)

    def headers(self) -> RawHeaders:
        return self.held.meter.raw_headers(self.limits, self.num_gateways(), self.clock.now())


class KeyedCallers:
    """Admits callers by their keys. ``num_gateways``: those that live, this one included; ``wall_clock``: seconds since
    the epoch, for expiry.
    """

    def __init__(
        self,
        peers: ClientPeers,
        keyring: Keyring,
        num_gateways: Callable[[], int],
        clock: Clock,
        wall_clock: Callable[[], float],
    ) -> None:
        self._peers = peers
        self._keyring = keyring
        self._num_gateways = num_gateways
        self._clock = clock
        self._wall_clock = wall_clock

    def admit(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        peer, path = self._peers.peer_of(scope, headers), scope["path"]
        if path in PROBES or path.startswith(PAGE):
            return Caller(peer, peer)
        held = self._held(_shown(headers))
        if not held.key.admin and path.startswith(ADMIN_PATHS):
            raise not_allowed(
                "This key may not see what operators see; `mesh keys add --admin` makes one", "admin_only"
            )
        if held.limits.requests_per_minute is not None:
            held.meter.ask(held.limits, self._num_gateways(), self._clock.now())
        tenant = self._peers.named_tenant(scope, headers) or held.key.name
        rights = KeyRights(held, self._num_gateways, self._clock)
        return Caller(peer, tenant, rights, cache_salt=self._keyring.cache_salt(held.key, tenant))

    def _held(self, shown: str | None) -> HeldKey:
        """Raise `ApiError`: no key or an unknown one (401), one whose time is over (403)."""
        if shown is None:
            raise not_known("This gateway wants a key: send it as `Authorization: Bearer KEY`")
        scheme, _, text = shown.partition(" ")
        held = self._keyring.find(text.strip()) if scheme.lower() == "bearer" else None
        if held is None:
            raise not_known("The key in `Authorization` or `x-api-key` is none of this gateway's")
        if held.key.has_expired(self._wall_clock()):
            raise not_allowed("This key has expired", "key_expired")
        return held


def _shown(headers: Mapping[str, str]) -> str | None:
    """Return a request's key as ``Authorization`` has it. Clients of Anthropic's API send ``x-api-key`` instead."""
    if "authorization" not in headers and "x-api-key" in headers:
        return f"Bearer {headers['x-api-key']}"
    return headers.get("authorization")
