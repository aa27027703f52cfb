"""What gateways tell, made up."""

import msgspec

from router.cli.top.known.picture import MeshPicture
from router.feed.frames import (
    Hello,
    MeshFrame,
    PlacementFrame,
    PromiseBucket,
    PromisesFrame,
    Quantiles,
    RequestEvent,
    RequestsFrame,
    ServicePromise,
)

NOW = 1_700_000_000.0
SERVICE = "llama2-70b"


def raw(row: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(row))


def hello(gateway: str = "g", at: float = NOW, ttft_s: float = 1.0) -> Hello:
    return Hello(gateway, "test", at, [ServicePromise(SERVICE, ttft_s, 0.1, 0.9)])


def engine(**fields: object) -> msgspec.Raw:
    row = {"host": "local", "state": "ready", "role": "decode", "services": [{"name": SERVICE}], "running": 3}
    return raw({**row, "num_blocks": 100, "free_blocks": 60, "waiting": 0, "migrations": 0, **fields})


def gateway(**fields: object) -> msgspec.Raw:
    return raw({"state": "ready", "requests": 3, "waiting": 0, "policy": "tropical", **fields})


def rows(at: float = NOW, **engines: msgspec.Raw) -> MeshFrame:
    """Engines by name, with dashes for underscores; one gateway."""
    return MeshFrame(at, {name.replace("_", "-"): row for name, row in engines.items()}, {"g": gateway()})


def event(id_: str, what: str, at: float = NOW, **fields: object) -> RequestEvent:
    return RequestEvent(id_, what, at, SERVICE, **fields)


def requests(*events: RequestEvent, at: float = NOW, **fields: int) -> RequestsFrame:
    return RequestsFrame(at, list(events), **fields)


def life(id_: str, at: float = NOW, *, kept: bool = True) -> list[RequestEvent]:
    """A request that is handed over and ends a second later."""
    return [
        event(id_, "arrived", at, prompt_tokens=100),
        event(id_, "dispatched", at, engine="prefill-0", decode="decode-0", reason="idle"),
        event(id_, "first_token", at + 0.2, engine="prefill-0", ttft_s=0.2),
        event(id_, "moved", at + 0.3, engine="decode-0"),
        event(id_, "ended", at + 1, outcome="finished", reason="stop", tokens=9, ttft_s=0.2, tpot_s=0.05, kept=kept),
    ]


def bucket(at: float = NOW, key: str = "a", ended: int = 10, kept: int = 9, p99: float = 0.9) -> PromiseBucket:
    ttft, tpot = Quantiles(0.1, 0.2, p99), Quantiles(0.02, 0.03, 0.04)
    return PromiseBucket(at, SERVICE, key, ended, kept, ended, kept, 1, 100, ttft, tpot, None)


def promises(*buckets: PromiseBucket, at: float = NOW) -> PromisesFrame:
    return PromisesFrame(at, 5, list(buckets))


def snapshot(gateway: str = "g") -> list[object]:
    """What a gateway tells a newcomer."""
    return [
        hello(gateway),
        rows(prefill_0=engine(role="prefill"), decode_0=engine(slack_s=-0.02, migrations=2, migrating_out=1)),
        promises(bucket(NOW - 7), bucket(NOW - 7, "b", kept=5)),
        PlacementFrame(NOW, None),
        requests(*life("order-1"), *life("order-2", kept=False), *life("order-3")[:3]),
    ]


def picture_of(*frames: object, gateways: tuple[str, ...] = ("g",), of: str = "g", now: float = NOW) -> MeshPicture:
    picture = MeshPicture("test", gateways)
    for frame in frames:
        picture.take(of, frame, now)
    return picture
