"""Which engine should take another role, when one phase runs short of engines while the other has some to spare."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from mesh.messages import ProcessState, Role, SetRole
from router.cluster import ClusterView
from router.policies.policy import RoleChange
from router.view import EngineView

SHORTAGE_S = 1.0  # that a shortage must last before a role changes
DWELL_S = 10.0  # between two changes, for the first to show its effect
BUSY_SHARE = 0.9  # of its promise that a decode step takes, or of its pool that is in use, on an engine that is full


@dataclass(frozen=True, slots=True)
class _Shortage:
    """Of engines that do what ``role`` does."""

    role: Role
    since: float
    seen_at: float


class RoleBalancer:
    """An engine's role is no more than what its scheduler and the routers do with it: nothing is moved or flushed.

    A decode engine becomes a prefill engine while requests wait for a prefill and the other decode engines have room;
    what it decodes, it finishes. An idle prefill engine becomes a multiplexing one while decode engines are full. One
    of each kind always stays. Several gateways see the same and ask for the same: the engine heeds one of them.
    """

    def __init__(self) -> None:
        self._shortage: _Shortage | None = None
        self._num_changes = -1
        self._changed_at = -inf

    def __repr__(self) -> str:
        return f"<RoleBalancer {self._shortage}, last change at {self._changed_at}>"

    def rebalance(self, view: ClusterView, num_waiting: int, now: float) -> tuple[RoleChange, ...]:
        """At most one change, none while the last one is young or a shortage is."""
        engines = [engine for engine in view.engines.values() if engine.state is ProcessState.READY]
        self._notice_changes(engines, now)
        prefill = [engine for engine in engines if engine.role is Role.PREFILL]
        decode = [engine for engine in engines if engine.role is not Role.PREFILL]
        change = _more_prefill(prefill, decode, num_waiting) or _more_decode(prefill, decode)
        if not self._has_lasted(change, now) or change is None or now < self._changed_at + DWELL_S:
            return ()
        engine, role = change
        self._changed_at, self._shortage = now, None
        return (RoleChange(engine.id, SetRole(role, engine.num_role_changes)),)

    def _notice_changes(self, engines: Iterable[EngineView], now: float) -> None:
        """Others' changes count as one's own."""
        num_changes = sum(engine.num_role_changes for engine in engines)
        if self._num_changes not in (-1, num_changes):
            self._changed_at = max(self._changed_at, now)
        self._num_changes = num_changes

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
    """The decode engine with the least to decode, if all others together are far from full."""
    if not num_waiting or len(decode) < 2 or any(engine.num_prefills < 2 for engine in prefill):
        return None
    chosen = min(decode, key=lambda engine: (engine.num_running, engine.num_tokens, engine.id))
    others = [engine for engine in decode if engine is not chosen]
    if any(fullness(engine) > BUSY_SHARE / 2 for engine in others):
        return None
    return chosen, Role.PREFILL


def _more_decode(prefill: list[EngineView], decode: list[EngineView]) -> tuple[EngineView, Role] | None:
    """The idle prefill engine with the last id, if all decode engines are full."""
    idle = [engine for engine in prefill if engine.num_prefills == 0]
    if not idle or len(prefill) < 2 or any(fullness(engine) < BUSY_SHARE for engine in decode):
        return None
    return max(idle, key=lambda engine: engine.id), Role.MULTIPLEX


def fullness(engine: EngineView) -> float:
    """Of its promise or its memory, whichever is closer to its end: 1 is full."""
    step = 0.0 if engine.tpot_slo_s == inf else engine.decode_step_s / engine.tpot_slo_s
    return max([step, *(pool.watermark for pool in engine.services.values())])
