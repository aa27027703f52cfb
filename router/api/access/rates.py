"""Counts what a key has used of its limits: leaky buckets, and requests under way. Time is passed in.

A bucket holds what a minute allows, so that who was silent may ask for a minute's worth at once. Tokens are taken when
a request comes, as many as it may use at most, and what it did not use is given back at its end.
"""

from dataclasses import dataclass
from typing import Final

from mesh.access.keys import KeyLimits
from router.api.errors import rate_limited

MINUTE_S: Final = 60.0
IN_FLIGHT_RETRY_S: Final = 1.0

RawHeaders = list[tuple[bytes, bytes]]

_REQUESTS: Final = (b"x-ratelimit-limit-requests", b"x-ratelimit-remaining-requests", b"x-ratelimit-reset-requests")
_TOKENS: Final = (b"x-ratelimit-limit-tokens", b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens")


@dataclass(slots=True)
class Bucket:
    """A leaky bucket. ``used`` of what a minute allows; it goes back to nothing evenly. Above the limit: that much is
    owed.
    """

    used: float = 0.0
    at: float = 0.0

    def leak(self, per_minute: float, now: float) -> None:
        self.used = max(0.0, self.used - (now - self.at) * per_minute / MINUTE_S)
        self.at = now

    def wait_s(self, wanted: float, per_minute: float) -> float:
        """Return the seconds until there is room for so many; for more than a minute allows: until all is given
        back.
        """
        over = self.used + min(wanted, per_minute) - per_minute
        return max(0.0, over * MINUTE_S / per_minute)


class Meter:
    """Meters one key in one gateway, which lets one of ``num_gateways`` equal parts of the key's limits through."""

    __slots__ = ("_num_in_flight", "_requests", "_tokens", "num_ended", "num_kept", "num_requests", "num_tokens")

    def __init__(self) -> None:
        self.num_requests = 0  # for answers, that were let through
        self.num_tokens = 0  # of prompts and answers, of those that have ended
        self.num_ended = 0  # of them, but for those that their clients cancelled
        self.num_kept = 0  # of those, whose promises were kept
        self._requests = Bucket()
        self._tokens = Bucket()
        self._num_in_flight = 0

    def __repr__(self) -> str:
        return f"<Meter {self._requests} {self._tokens} in_flight={self._num_in_flight}>"

    def ask(self, limits: KeyLimits, num_gateways: int, now: float) -> None:
        """One more request. Raise `ApiError` (429) if it is one too many."""
        if limits.requests_per_minute is None:
            return
        per_minute = max(1.0, limits.requests_per_minute / num_gateways)
        self._requests.leak(per_minute, now)
        if wait_s := self._requests.wait_s(1.0, per_minute):
            message = f"Rate limit: this key may send {limits.requests_per_minute} requests a minute"
            raise rate_limited(message, wait_s, self.headers(limits, num_gateways, now))
        self._requests.used += 1.0

    def begin(self, limits: KeyLimits, num_tokens: int, num_gateways: int, now: float) -> None:
        """A request for an answer, of so many tokens at most. Raise `ApiError` (429) if it has to wait."""
        if limits.in_flight is not None and self._num_in_flight >= max(1, limits.in_flight // num_gateways):
            message = f"Rate limit: this key may have {limits.in_flight} requests in flight"
            raise rate_limited(message, IN_FLIGHT_RETRY_S, self.headers(limits, num_gateways, now))
        if limits.tokens_per_minute is not None:
            per_minute = max(1.0, limits.tokens_per_minute / num_gateways)
            self._tokens.leak(per_minute, now)
            if wait_s := self._tokens.wait_s(num_tokens, per_minute):
                message = f"Rate limit: this key may use {limits.tokens_per_minute} tokens a minute"
                raise rate_limited(message, wait_s, self.headers(limits, num_gateways, now))
            self._tokens.used += num_tokens
        self._num_in_flight += 1
        self.num_requests += 1

    def end(self, num_reserved: int, num_used: int) -> None:
        """End a request; what was reserved when it began is corrected."""
        self._num_in_flight -= 1
        self.num_tokens += num_used
        self._tokens.used = max(0.0, self._tokens.used + num_used - num_reserved)

    def judge(self, *, is_kept: bool) -> None:
        """Count a request that has ended."""
        self.num_ended += 1
        self.num_kept += is_kept

    def raw_headers(self, limits: KeyLimits, num_gateways: int, now: float) -> RawHeaders:
        """Return what is left, as OpenAI's servers tell it."""
        found: RawHeaders = []
        if limits.requests_per_minute is not None:
            found += _left(_REQUESTS, limits.requests_per_minute, self._requests, num_gateways, now)
        if limits.tokens_per_minute is not None:
            found += _left(_TOKENS, limits.tokens_per_minute, self._tokens, num_gateways, now)
        return found

    def headers(self, limits: KeyLimits, num_gateways: int, now: float) -> dict[str, str]:
        """The same as text."""
        raw = self.raw_headers(limits, num_gateways, now)
        return {name.decode(): value.decode() for name, value in raw}


def _left(names: tuple[bytes, bytes, bytes], limit: int, bucket: Bucket, num_gateways: int, now: float) -> RawHeaders:
    per_minute = max(1.0, limit / num_gateways)
    bucket.leak(per_minute, now)
    return [
        (names[0], b"%d" % limit),
        (names[1], b"%d" % max(0.0, per_minute - bucket.used)),
        (names[2], duration(bucket.used * MINUTE_S / per_minute)),
    ]


class Charge:
    """What one request for an answer has reserved, until its end."""

    __slots__ = ("_is_settled", "_meter", "_num_reserved")

    def __init__(self, meter: Meter, num_reserved: int) -> None:
        self._meter = meter
        self._num_reserved = num_reserved
        self._is_settled = False

    def settle(self, num_used: int) -> None:
        """Settle the charge at the end of the request; once more changes nothing."""
        if not self._is_settled:
            self._is_settled = True
            self._meter.end(self._num_reserved, num_used)


def duration(seconds: float) -> bytes:
    """Write a duration as OpenAI's headers do: 250ms, 1.5s, 6m0s."""
    if seconds < 1:
        return b"%dms" % (1000 * seconds + 0.5)
    if seconds < MINUTE_S:
        return b"%.3gs" % seconds
    return b"%dm%ds" % divmod(int(seconds), 60)
