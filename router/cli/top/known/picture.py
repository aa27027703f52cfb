"""Folds the frames of all gateways into one picture of the mesh. Pure: times are passed in."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from mesh.wire.placement import PlacementStatus
from router.cli.top.known.plans import DecisionRow, PlacementRow, decision_row, placement_row
from router.cli.top.known.promises import WINDOW_S, PromiseRow, RecentBuckets, promise_rows
from router.cli.top.known.requests import MoveRow, RequestRow, Requests
from router.cli.top.known.rows import EngineRow, GatewayRow, engine_row, gateway_row
from router.cli.top.words import clean
from router.feed.frames import (
    Bye,
    Frame,
    Hello,
    MeshFrame,
    PlacementFrame,
    PromisesFrame,
    RequestsFrame,
    ServicePromise,
)

MOST_ROWS: Final = 2048  # of one kind, from one gateway
MOST_SERVICES: Final = 256
MOST_DECISIONS: Final = 20

Row = TypeVar("Row", EngineRow, GatewayRow)


@dataclass(slots=True)
class Source:
    """One gateway's feed. ``state``: connecting, live or silent. ``ahead_s``: of its clock, before the reader's."""

    gateway: str
    requests: Requests
    state: str = "connecting"
    problem: str = ""
    since: float = 0.0  # that it is in this state
    ahead_s: float = 0.0
    is_whole: bool = False  # it has told how everything is
    buckets: RecentBuckets = field(default_factory=RecentBuckets)
    engines: dict[str, tuple[int, EngineRow]] = field(default_factory=dict)  # each with the turn in which it was told
    gateways: dict[str, tuple[int, GatewayRow]] = field(default_factory=dict)
    services: dict[str, ServicePromise] = field(default_factory=dict)
    placement: PlacementRow | None = None

    @property
    def is_live(self) -> bool:
        return self.state == "live"


class MeshPicture:
    """A mesh as its gateways tell it. Methods that take ``now`` are asked in seconds since the epoch."""

    def __init__(self, mesh: str, gateways: Iterable[str]) -> None:
        self.mesh = mesh
        self.sources = {name: Source(name, Requests(name)) for name in gateways}
        self.decisions: list[DecisionRow] = []  # of the placement daemon, newest first
        self._turn = 0

    def __repr__(self) -> str:
        states = ", ".join(f"{source.gateway} {source.state}" for source in self.sources.values())
        return f"<MeshPicture of {self.mesh}: {states}>"

    # --- what comes ---------------------------------------------------------------------------------------------------

    def take(self, gateway: str, frame: Frame, now: float) -> None:
        """Fold a frame of that gateway's feed."""
        source = self.sources[gateway]
        self._turn += 1
        match frame:
            case Hello():
                self._greet(source, frame, now)
            case MeshFrame():
                _merge(source.engines, frame.engines, engine_row, self._turn)
                _merge(source.gateways, frame.gateways, gateway_row, self._turn)
            case RequestsFrame():
                source.requests.take(frame)
                source.is_whole = True  # a snapshot ends with it
            case PromisesFrame():
                source.buckets.take(frame)
            case PlacementFrame():
                self._plan(source, frame.status, now)
            case Bye():
                self.lost(gateway, "it ends, or has a successor", now)

    def lost(self, gateway: str, why: str, now: float) -> None:
        """Nothing comes from that gateway any more."""
        source = self.sources[gateway]
        source.problem = clean(why)
        if source.state != "silent":
            source.state, source.since = "silent", now

    def _greet(self, source: Source, hello: Hello, now: float) -> None:
        """All that follows is told anew; what has ended stays known."""
        source.state, source.since, source.problem = "live", now, ""
        source.ahead_s, source.is_whole = hello.at - now, False
        source.engines, source.gateways = {}, {}
        source.services = {one.name: one for one in map(_cleaned, hello.services[:MOST_SERVICES])}
        source.requests.restart()

    def _plan(self, source: Source, told: Mapping[str, Any] | None, now: float) -> None:
        try:
            status = None if told is None else msgspec.convert(told, PlacementStatus)
        except msgspec.MsgspecError:
            return
        source.placement = None if status is None else placement_row(status, now)
        decided = None if status is None else decision_row(status, now)
        if decided is not None and decided.interval not in {one.interval for one in self.decisions}:
            self.decisions = [decided, *self.decisions][:MOST_DECISIONS]

    # --- what is known ------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Return whether each gateway has told how everything is, or is silent."""
        return all(source.is_whole or source.state == "silent" for source in self.sources.values())

    @property
    def has_live(self) -> bool:
        return any(source.is_live for source in self.sources.values())

    @property
    def silent(self) -> list[Source]:
        return [source for source in self.sources.values() if source.state == "silent"]

    def engines(self) -> list[EngineRow]:
        """Each engine as it was told last, in the order of the topology."""
        return _newest(source.engines for source in self._heard())

    def gateways(self) -> list[GatewayRow]:
        return _newest(source.gateways for source in self._heard())

    def admin_urls(self) -> dict[str, str]:
        """Return where gateways are reached, as others say."""
        return {row.id: row.admin_url for row in self.gateways() if row.admin_url}

    def requests(self) -> list[tuple[float, RequestRow]]:
        """All requests that are known, each with the time of its arrival, newest first."""
        rows = [(row.arrived_at - source.ahead_s, row) for source in self.sources.values() for row in source.requests]
        return sorted(rows, key=lambda row: row[0], reverse=True)

    def moves(self) -> list[tuple[float, MoveRow]]:
        """Return moves with their times, newest first."""
        moves = [
            (move.at - source.ahead_s, move) for source in self.sources.values() for move in source.requests.moves()
        ]
        return sorted(moves, key=lambda move: move[0], reverse=True)

    def promises(self, now: float) -> list[PromiseRow]:
        return promise_rows(self._buckets(now), self.services())

    def services(self) -> dict[str, ServicePromise]:
        known: dict[str, ServicePromise] = {}
        for source in self._heard():
            known |= source.services
        return known

    def placement(self) -> PlacementRow | None:
        found = [source.placement for source in self._heard() if source.placement is not None]
        return max(found, key=lambda status: status.seq, default=None)

    @property
    def one_in(self) -> int:
        """Return of how many requests one is told, where that is the most."""
        return max((source.requests.one_in for source in self.sources.values() if source.is_live), default=1)

    def _buckets(self, now: float) -> Iterator[tuple[str, str, float, Any]]:
        for source in self.sources.values():
            at = now + source.ahead_s
            for service, key, bucket in source.buckets.since(at - WINDOW_S):
                yield service, key, max(0.0, at - bucket.at), bucket

    def _heard(self) -> list[Source]:
        """Sources that are live, or all while none is: what was known last is better than nothing."""
        live = [source for source in self.sources.values() if source.is_live]
        return live or list(self.sources.values())


def _merge(
    rows: dict[str, tuple[int, Row]],
    changes: Mapping[str, msgspec.Raw],
    read: Callable[[str, bytes], Row | None],
    turn: int,
) -> None:
    for id_, raw in changes.items():
        row = None if bytes(raw) == b"null" else read(id_, bytes(raw))
        if row is None:
            rows.pop(clean(id_), None)
        elif row.id in rows or len(rows) < MOST_ROWS:
            rows[row.id] = (turn, row)


def _cleaned(promise: ServicePromise) -> ServicePromise:
    return msgspec.structs.replace(promise, name=clean(promise.name))


def _newest(told: Iterable[Mapping[str, tuple[int, Row]]]) -> list[Row]:
    """Of each row the one that was told last, as the gateways hear of changes at different times."""
    newest: dict[str, tuple[int, Row]] = {}
    for rows in told:
        for id_, turned in rows.items():
            if id_ not in newest or turned[0] > newest[id_][0]:
                newest[id_] = turned
    return [row for _, row in newest.values()]
