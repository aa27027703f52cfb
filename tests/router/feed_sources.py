"""What a feed reads, made up."""

from pathlib import Path

from mesh.topology.schema import GatewaySpec, ServiceSpec, Slo, Topology
from router.feed.feed import FeedSources
from router.history.timelines import Timelines
from tests.router.cluster import SERVICE

TOPOLOGY = Topology("test", Path(), (ServiceSpec(SERVICE, "m", Slo(1.0, 0.1)),), (), (GatewaySpec("g"),))
AHEAD_S = 1_000_000.0  # of the wall clock


def wall(now: float) -> float:
    return now + AHEAD_S


def engine_row(id_: str, **fields: object) -> dict[str, object]:
    return {
        "id": id_,
        "state": "ready",
        "services": [{"name": SERVICE, "prefill_cost": {}, "decode_cost": {}}],
        **fields,
    }


def report_of(*engines: dict[str, object], **rest: object) -> dict[str, object]:
    return {"mesh": "test", "engines": list(engines), "gateways": [{"id": "g"}], **rest}


def sources_of(timelines: Timelines | None = None, report=None, placement=lambda: None) -> FeedSources:
    told = report or (lambda now: report_of(engine_row("decode-0")))
    return FeedSources(TOPOLOGY, "g", Timelines() if timelines is None else timelines, told, placement, wall)
