"""Frames of the feed: what pages and ``mesh top`` are told. Each is one server-sent event, named by its tag.

Times named ``at`` are seconds since the epoch; durations are seconds. Fields that have their defaults are left out.
"""

from typing import Any, Final

import msgspec

NULL: Final = msgspec.Raw(b"null")


class ServicePromise(msgspec.Struct, frozen=True):
    """A service and what its topology promises."""

    name: str
    ttft_s: float
    tpot_s: float
    attainment: float


class Hello(msgspec.Struct, frozen=True, tag="hello", tag_field="frame"):
    """The first frame: whose feed it is, and what the topology promises."""

    gateway: str
    mesh: str
    at: float
    services: list[ServicePromise]


class MeshFrame(msgspec.Struct, frozen=True, tag="mesh", tag_field="frame"):
    """What changed in ``mesh status --json``, as this gateway hears it.

    ``engines`` and ``gateways``: rows by id; null: it is not there any more. ``rest``: the other keys, when any of them
    changed, else null. The first frame has everything.
    """

    at: float
    engines: dict[str, msgspec.Raw]
    gateways: dict[str, msgspec.Raw]
    rest: msgspec.Raw = NULL


class RequestEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something happened to a request of this gateway.

    ``what``: arrived, waits, dispatched, refused, interrupted, moved, first_token, ended. ``engine``: where it
    happened; of a dispatch, where the prompt goes. ``decode``: of a dispatch, where its tokens will come from.
    """

    id: str
    what: str
    at: float
    service: str
    key: str = ""
    engine: str = ""
    decode: str = ""
    reason: str = ""  # or the rule of a dispatch
    outcome: str = ""
    prompt_tokens: int = 0
    tokens: int = 0  # of the answer so far
    ttft_s: float | None = None
    tpot_s: float | None = None
    predicted_s: float | None = None  # from the dispatch to the first token
    took_s: float | None = None  # the same, as it was
    kept: bool | None = None  # both promises; of an end that was not the client's wish


class RequestsFrame(msgspec.Struct, frozen=True, tag="requests", tag_field="frame"):
    """What happened since the last such frame, in order. One request in ``one_in`` is told of; ``left_out``: events."""

    at: float
    events: list[RequestEvent]
    one_in: int = 1
    left_out: int = 0


class Quantiles(msgspec.Struct, frozen=True):
    """Quantiles of what ended in a bucket: seconds, or a ratio."""

    p50: float
    p90: float
    p99: float


class PromiseBucket(msgspec.Struct, frozen=True):
    """Requests of one service and key that ended within ``bucket_s`` from ``at``, but for those that their client left.

    ``tokens``: of the answers of those that finished. ``prediction``: time from dispatch to first token over its
    prediction.
    """

    at: float
    service: str
    key: str
    ended: int
    kept_ttft: int
    kept_tpot: int
    kept: int
    not_served: int  # rejected or failed
    tokens: int
    ttft_s: Quantiles | None
    tpot_s: Quantiles | None
    prediction: Quantiles | None


class PromisesFrame(msgspec.Struct, frozen=True, tag="promises", tag_field="frame"):
    """Buckets that changed; the first frame has those of the last minutes. A bucket is told again while it grows."""

    at: float
    bucket_s: float
    buckets: list[PromiseBucket]


class PlacementFrame(msgspec.Struct, frozen=True, tag="placement", tag_field="frame"):
    """The placement daemon's last status (``PlacementStatus``); None: there is no daemon, or it is silent."""

    at: float
    status: dict[str, Any] | None


class Bye(msgspec.Struct, frozen=True, tag="bye", tag_field="frame"):
    """The last frame: the gateway ends or has a successor. Connect again."""

    at: float


Frame = Hello | MeshFrame | RequestsFrame | PromisesFrame | PlacementFrame | Bye

_ENCODER = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Write a frame as a server-sent event. JSON has no line breaks, so one ``data`` line holds it."""
    name = type(frame).__struct_config__.tag
    return b"event: %b\ndata: %b\n\n" % (str(name).encode(), _ENCODER.encode(frame))


def decode(data: bytes | str) -> Frame:
    """Read the ``data`` of an event. Raise `msgspec.MsgspecError` if it is no frame."""
    frame: Frame = _DECODER.decode(data)
    return frame
