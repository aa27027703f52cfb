"""Decides which engine takes another role, when one phase is short of engines and the other has some to spare."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from engines.costs.linear import decode_step_s
from mesh.wire.control import ProcessState, Role, SetRole
from router.policies.capabilities import FlipsRoles, RoleChange
from router.view.cluster_view import ClusterView
from router.view.engine_view import EngineView

SHORTAGE_S = 1.0  # that a shortage must last before a role changes
DWELL_S = 5.0  # from a change to the next, for the first to show its effect
STEP_SHARE = 0.9  # of its promise that a decode step takes on an engine that is full
FULL = 0.9  # from here on decode engines need help
SPARE = 0.75  # up to here they can do with one engine less: well below, or the next change would undo this one


@dataclass(frozen=True, slots=True)
class _Shortage:
    """Of engines that do what ``role`` does."""

    role: Role
    since: float
    seen_at: float


class RoleBalancer(FlipsRoles):
    """An engine's role is no more than what its scheduler and the routers do with it: nothing is moved or flushed.

    A decode engine becomes a prefill engine while requests wait for a prefill and the other decode engines have room;
    what it decodes, it finishes. An idle prefill engine becomes a multiplexing one while decode engines are full. One
    of each kind always stays. Several gateways see the same and ask for the same: the engine heeds one of them.
    """

    def __init__(self) -> None:
        self._shortage: _Shortage | None = None
        self._roles: dict[str, Role] = {}
        self._changed_at = -inf
        self._changed_to: Role | None = None

    def __repr__(self) -> str:
        return f"<RoleBalancer {self._shortage}, last change at {self._changed_at}>"

    def rebalance(self, view: ClusterView, num_waiting: int, now: float) -> tuple[RoleChange, ...]:
        """Make at most one change, none while a shortage is young or the last change has yet to show."""
        engines = [engine for engine in view.engines.values() if engine.state is ProcessState.READY]
        self._notice_changes(engines, now)
        prefill = [engine for engine in engines if engine.role is Role.PREFILL]
        decode = [engine for engine in engines if engine.role is not Role.PREFILL]
        change = _more_prefill(prefill, decode, num_waiting) or _more_decode(prefill, decode)
        if not self._has_lasted(change, now) or change is None or not self._has_shown(change[1], now):
            return ()
        engine, role = change
        self._changed_at, self._changed_to, self._shortage = now, role, None
        return (RoleChange(engine.id, SetRole(role, engine.num_role_changes)),)

    def _notice_changes(self, engines: Iterable[EngineView], now: float) -> None:
        """Others' changes count as one's own."""
        roles = {engine.id: engine.role for engine in engines}
        for id_, role in roles.items():
            if self._roles.get(id_, role) is not role:
                self._changed_at, self._changed_to = now, role
        self._roles = roles

    def _has_shown(self, role: Role, now: float) -> bool:
        """What the last change brought. Where all were full, an empty engine shows at once; queues take their time."""
        is_more_decode = role is self._changed_to is Role.MULTIPLEX
        return is_more_decode or now >= self._changed_at + DWELL_S

    def _has_lasted(self, change: tuple[EngineView, Role] | None, now: float) -> bool:
        if change is None:
            self._shortage = None
            return False
        known = self._shortage
        if known is not None and known.role is change[1] and now <= known.seen_at + SHORTAGE_S:
            self._shortage = replace(known, seen_at=now)
        else:  # also after a time without requests that wait, when nobody asks
            self._shortage = _Shortage(change[1], now, now)
        return now >= self._shortage.since + SHORTAGE_S


def _more_prefill(
    prefill: list[EngineView], decode: list[EngineView], num_waiting: int
) -> tuple[EngineView, Role] | None:
    """The decode engine with the least to decode, if requests wait for prefill engines and the others can do without.

    They will have its decodes besides their own, and more of them: if prefills are what holds requests up, one engine
    more lets as many more requests through.
    """
    if not num_waiting or len(decode) < 2 or any(engine.num_prefills == 0 for engine in prefill):
        return None
    more = (len(prefill) + 1) / max(1, len(prefill))
    if sum(map(fullness, decode)) * more / (len(decode) - 1) > SPARE:
        return None
    return min(decode, key=lambda engine: (engine.num_running, engine.num_tokens, engine.id)), Role.PREFILL


def _more_decode(prefill: list[EngineView], decode: list[EngineView]) -> tuple[EngineView, Role] | None:
    """The idle prefill engine with the last id, if all decode engines are full."""
    idle = [engine for engine in prefill if engine.num_prefills == 0]
    if not idle or len(prefill) < 2 or any(fullness(engine) < FULL for engine in decode):
        return None
    return max(idle, key=lambda engine: engine.id), Role.MULTIPLEX


def fullness(engine: EngineView) -> float:
    """Return the part of the decodes that its promise allows, or of its memory, whichever is closer to its end: 1 is
    full.

    A step has a fixed cost, however few decode: what counts is how much of the rest is used.
    """
    return max([_step_fullness(engine), *(pool.watermark for pool in engine.services.values())])


def _step_fullness(engine: EngineView) -> float:
    if engine.tpot_slo_s == inf:
        return 0.0
    alone_s = min(decode_step_s(pool.decode_cost, 1, 1) for pool in engine.services.values())
    room_s = STEP_SHARE * engine.tpot_slo_s - alone_s
    used_s = engine.decode_step_s - alone_s
    return used_s / room_s if room_s > 0 else 1.0
