"""What became of one request, as a line of JSON."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

REFUSALS = (429, 503)


class Failure(StrEnum):
    """Why a request has no whole answer."""

    REFUSED = "refused"  # 429 and 503: come back later
    HTTP = "http"  # any other status but 200
    TIMEOUT = "timeout"
    CONNECTION = "connection"  # it broke, or never was, before anything of an answer
    BROKEN = "broken"  # in the midst of the stream, or the stream said that something went wrong
    CANCELLED = "cancelled"  # the run was stopped; such requests are not counted


class Promise(msgspec.Struct, frozen=True, omit_defaults=True):
    """At most so many seconds each. ``itl_s`` is for every gap between two events of the answer."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    itl_s: float | None = None
    e2el_s: float | None = None

    @property
    def is_empty(self) -> bool:
        return self == Promise()

    def override(self, other: "Promise | None") -> "Promise":
        """``other`` where it says something."""
        if other is None:
            return self
        own = {name: getattr(other, name) for name in self.__struct_fields__ if getattr(other, name) is not None}
        return msgspec.structs.replace(self, **own)


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """Seconds; times count from the start of the run.

    ``due_s``: when it was to be sent. ``woke_s``: when the generator came to it; what lies between is the generator's
    own lag. ``sent_s``: when it was sent; what lies between is waiting for a free slot (``--concurrency``).
    """

    number: int
    model: str
    due_s: float
    woke_s: float
    sent_s: float
    ended_s: float
    input_tokens: int
    output_tokens: int
    asked_input_tokens: int = 0  # 0: unknown
    asked_output_tokens: int = 0
    is_counted: bool = False  # by the server; else by its events
    cached_tokens: int = 0
    num_chunks: int = 0
    first_s: float | None = None
    last_s: float | None = None
    itls_s: list[float] = []
    status: int = 0
    failure: Failure | None = None
    reason: str | None = None
    promise: Promise | None = None  # its own
    headers: Mapping[str, str] = {}  # what the mesh says of it
    text: str | None = None

    @property
    def is_finished(self) -> bool:
        return self.failure is None

    @property
    def ttft_s(self) -> float | None:
        """From when it was due: waiting for the client is waiting, too."""
        return None if self.first_s is None else self.first_s - self.due_s

    @property
    def tpot_s(self) -> float | None:
        """None if the answer had one token."""
        if self.first_s is None or self.last_s is None or self.output_tokens < 2:
            return None
        return (self.last_s - self.first_s) / (self.output_tokens - 1)

    @property
    def e2el_s(self) -> float | None:
        return None if self.last_s is None else self.last_s - self.due_s

    def keeps(self, promise: Promise) -> bool:
        """Is its answer whole, and as fast as promised? An answer of one token has no TPOT and no gaps to break."""
        if self.failure is not None:
            return False
        worst_itl_s = max(self.itls_s, default=None)
        measured = (self.ttft_s, self.tpot_s, worst_itl_s, self.e2el_s)
        limits = (promise.ttft_s, promise.tpot_s, promise.itl_s, promise.e2el_s)
        return all(
            value is None or limit is None or value <= limit for value, limit in zip(measured, limits, strict=True)
        )
