"""Keeps which engines run, as their supervisors and they themselves say, and what they were ordered to do meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mesh.addresses import supervisors
from mesh.topology.schema import Topology
from mesh.wire.control import ProcessState, SetRunning
from mesh.wire.frames import Sender
from mesh.wire.status import ENDED, ChildStatus, EngineStatus, SupervisorStatus
from router.scaling.pools import EnginePhase

RESTS_S = 30.0  # an engine that did not start is not asked again for so long, twice as long after each further time
LONGEST_REST_S = 960.0
DOWN_S = 5.0  # an engine that died and does not start again within it counts no more until it does
ROOM_S = 10.0  # after which room for a host is asked for again: who gives it forgets after a while


class ScaleOrder(NamedTuple):
    supervisor: str
    message: SetRunning


class _Heard(NamedTuple):
    status: EngineStatus
    at: float


class _Order(NamedTuple):
    running: bool
    until: float  # it should have been seen to be obeyed
    is_for_room: bool = False  # its host is nowhere yet


@dataclass(slots=True)
class _Failures:
    number: int = 0
    rests_until: float = 0.0


class Fleet:
    def __init__(self, topology: Topology) -> None:
        self._timing = topology.timing
        self._supervisor_of = supervisors(topology)
        self._host_of = {engine.id: engine.host for engine in topology.engines}
        self._nearest = "" if topology.placement is None else self._supervisor_of[topology.placement.id]
        self._away: frozenset[str] = frozenset()  # hosts
        self._engines: dict[str, _Heard] = {}
        self._children: dict[str, ChildStatus] = {}
        self._orders: dict[str, _Order] = {}
        self._failures: dict[str, _Failures] = {}
        self._died_at: dict[str, float] = {}  # of those that are to start again

    def __repr__(self) -> str:
        return f"<Fleet { ({name: child.state for name, child in self._children.items()}) }>"

    def hear_engine(self, engine: str, status: EngineStatus, now: float) -> None:
        self._engines[engine] = _Heard(status, now)

    def hear_supervisor(self, sender: Sender, status: SupervisorStatus, now: float) -> None:
        if sender.process == self._nearest:
            self._away = frozenset(status.away)
        for child in status.children:
            if self._supervisor_of.get(child.process) == sender.process:
                self._hear_child(child, now)

    def _hear_child(self, child: ChildStatus, now: float) -> None:
        before = self._children.get(child.process)
        self._children[child.process] = child
        if child.state == "restarting":
            self._died_at.setdefault(child.process, now)
        else:
            self._died_at.pop(child.process, None)
        order = self._orders.get(child.process)
        if order is not None and (order.is_for_room or order.running is (child.state not in (*ENDED, "leaving"))):
            del self._orders[child.process]
        if child.state == "running":
            self._failures.pop(child.process, None)
        elif before is not None and child.state in ENDED and before.state in ("starting", "restarting"):
            failures = self._failures.setdefault(child.process, _Failures())
            failures.rests_until = now + min(LONGEST_REST_S, RESTS_S * 2**failures.number)
            failures.number += 1

    def statuses(self, now: float) -> Mapping[str, EngineStatus]:
        """Return the statuses of those that were heard within their lease and serve."""
        return {
            engine: heard.status
            for engine, heard in self._engines.items()
            if now - heard.at <= self._timing.lease_s and self.phase(engine, now) is EnginePhase.SERVING
        }

    def phase(self, engine: str, now: float) -> EnginePhase:
        """Return an engine's phase: as ordered, while the order is on its way."""
        order, child = self._orders.get(engine), self._children.get(engine)
        if order is not None and now < order.until:
            return EnginePhase.STARTING if order.running else EnginePhase.LEAVING
        if child is None and not self._is_away(engine):
            return EnginePhase.UNKNOWN
        if child is None or self._is_away(engine) or child.state in ENDED:
            return EnginePhase.STANDBY
        if child.state == "leaving" or self._drains(engine, now):
            return EnginePhase.LEAVING
        if now - self._died_at.get(engine, now) >= DOWN_S:
            return EnginePhase.DOWN
        return EnginePhase.SERVING if child.state == "running" else EnginePhase.STARTING

    def _drains(self, engine: str, now: float) -> bool:
        heard = self._engines.get(engine)
        return (
            heard is not None and now - heard.at <= self._timing.lease_s and heard.status.state is ProcessState.DRAINING
        )

    def may_start(self, engine: str, now: float) -> bool:
        """It is on standby, and did not fail to start of late."""
        failures = self._failures.get(engine)
        return self.phase(engine, now) is EnginePhase.STANDBY and (failures is None or now >= failures.rests_until)

    def failure(self, engine: str) -> str | None:
        """Return why it did not start when it was last asked to."""
        return (self._children[engine].last_exit or "it ended") if engine in self._failures else None

    def order(self, engine: str, running: bool, now: float) -> ScaleOrder:
        """Order it of its supervisor. Where its host is nowhere, the nearest supervisor finds room for that first."""
        if self._is_away(engine):
            self._orders[engine] = _Order(running, now + ROOM_S, is_for_room=True)
            return ScaleOrder(self._nearest, SetRunning(engine, running))
        self._orders[engine] = _Order(running, now + self._timing.lease_s + self._timing.reply_s)
        return ScaleOrder(self._supervisor_of[engine], SetRunning(engine, running))

    def _is_away(self, engine: str) -> bool:
        return self._host_of[engine] in self._away
