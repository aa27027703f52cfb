"""In whose name the lines of a batch run: with the rights of its key, and without using up what the key may ask for.

Lines only get what promises leave, so limits of requests, tokens and requests in flight are not theirs. Tokens count as
used all the same.
"""

from collections.abc import Callable
from typing import Final

from mesh.access.keys import KeyLimits
from router.api.access.keyring import HeldKey, Keyring
from router.api.access.rates import Charge, Meter, RawHeaders
from router.api.errors import not_allowed, not_known
from router.api.http.callers import Caller

PEER: Final = "batches"  # whom their bodies are counted for as they enter
TENANT: Final = "batch:"  # before the tenant whose batch it is


class BatchCharge(Charge):
    """Counts what a line has used. Nothing was reserved for it."""

    __slots__ = ("_meter_of_key",)

    def __init__(self, meter: Meter) -> None:
        super().__init__(meter, 0)
        self._meter_of_key = meter

    def settle(self, num_used: int) -> None:
        """Settle at the end of the line; once more changes nothing."""
        if not self._is_settled:
            self._is_settled = True
            self._meter_of_key.num_tokens += num_used


class BatchRights:
    """What a key allows for its batches."""

    __slots__ = ("_held", "key", "limits")

    def __init__(self, held: HeldKey) -> None:
        self._held = held
        self.key = held.key.id
        self.limits: KeyLimits = held.limits

    def begin(self, num_tokens: int) -> BatchCharge:
        self._held.meter.num_requests += 1
        return BatchCharge(self._held.meter)

    def headers(self) -> RawHeaders:
        return []


class KeyedBatchCallers:
    """Batches run while their keys are good."""

    def __init__(self, keyring: Keyring, wall_clock: Callable[[], float]) -> None:
        self._keyring = keyring
        self._wall_clock = wall_clock

    def __call__(self, key: str, tenant: str, window_s: float) -> Caller:
        """Raise `ApiError` if the key is gone (401), or its time is over (403)."""
        held = self._keyring.of_id(key)
        if held is None:
            raise not_known("The key that asked for the batch is gone")
        if held.key.has_expired(self._wall_clock()):
            raise not_allowed("The key that asked for the batch has expired", "key_expired")
        salt = self._keyring.cache_salt(held.key, tenant)
        return Caller(PEER, f"{TENANT}{tenant}", BatchRights(held), window_s, salt)


def open_batch_callers(key: str, tenant: str, window_s: float) -> Caller:
    """Return the caller of a line where everybody may ask."""
    return Caller(PEER, f"{TENANT}{tenant}", None, window_s)
