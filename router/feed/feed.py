"""Composes the frames of one gateway's feed. Pure: what is read is passed in, and time with it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from mesh.topology.schema import Topology
from mesh.wire.placement import PlacementStatus
from router.feed.frames import Frame, Hello, MeshFrame, PlacementFrame, ServicePromise, encode
from router.feed.mesh_rows import MeshRows
from router.feed.promises import PromiseSeries
from router.feed.travels import Travels
from router.history.timelines import Timelines

TICK_S: Final = 0.1
MESH_EVERY: Final = 5  # ticks
SLOW_EVERY: Final = 10  # ticks, of what changes by the second


@dataclass(frozen=True, slots=True)
class FeedSources:
    """What a feed reads. ``gateway``: its id in the topology; ``report``: as `mesh.report.report` makes it, at a time
    of the gateway's clock; ``wall``: that time as seconds since the epoch; ``placement``: the daemon's last status.
    """

    topology: Topology
    gateway: str
    timelines: Timelines
    report: Callable[[float], Mapping[str, Any]]
    placement: Callable[[], PlacementStatus | None]
    wall: Callable[[float], float]


class Feed:
    """What all readers are told, from when it is made. Whoever joins later begins with `snapshot`."""

    def __init__(self, sources: FeedSources) -> None:
        self._sources = sources
        self._travels = Travels(sources.timelines, sources.wall)
        self._promises = PromiseSeries(sources.timelines, sources.wall)
        self._rows = MeshRows()
        self._placement: PlacementStatus | None = None
        self._num_ticks = 0

    def __repr__(self) -> str:
        return f"<Feed {self._num_ticks} ticks, {self._rows!r}>"

    def tick(self, now: float) -> bytes:
        """Return the events that are due every `TICK_S`, in one piece; empty: nothing happened."""
        frames: list[Frame | None] = []
        if self._num_ticks % MESH_EVERY == 0:
            frames.append(self._mesh(now))
        frames.append(self._travels.look(now))
        if self._num_ticks % SLOW_EVERY == 0:
            frames += self._promises.look(now), self._plan(now)
        self._num_ticks += 1
        return b"".join(encode(frame) for frame in frames if frame is not None)

    def snapshot(self, now: float) -> bytes:
        """Everything as it was told last. Tell what is new first, or a joining reader hears it twice."""
        wall = self._sources.wall(now)
        frames: tuple[Frame, ...] = (
            self._hello(wall),
            self._rows.all(wall),
            self._promises.all(now),
            PlacementFrame(wall, _plain(self._placement)),
            self._travels.in_flight(now),
        )
        return b"".join(map(encode, frames))

    def _hello(self, wall: float) -> Hello:
        topology = self._sources.topology
        services = [
            ServicePromise(one.name, one.slo.ttft_s, one.slo.tpot_s, one.slo.attainment) for one in topology.offered
        ]
        return Hello(self._sources.gateway, topology.name, wall, services)

    def _mesh(self, now: float) -> MeshFrame | None:
        return self._rows.look(self._sources.report(now), self._sources.wall(now))

    def _plan(self, now: float) -> PlacementFrame | None:
        status = self._sources.placement()
        if status == self._placement:
            return None
        self._placement = status
        return PlacementFrame(self._sources.wall(now), _plain(status))


def _plain(status: PlacementStatus | None) -> dict[str, Any] | None:
    return None if status is None else msgspec.to_builtins(status)
