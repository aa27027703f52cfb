"""Decides which engine takes another role, when one phase is short of engines and the other has some to spare."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from engines.costs.linear import decode_step_s
from mesh.wire.control import Role, SetRole
from router.policies.capabilities import FlipsRoles, RoleChange
from router.view.cluster_view import ClusterView, MeshPeer, MeshPeers
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

    Engines that share a service, directly or by others, are one pool, and pools are balanced apart. Where the placement
    daemon changes plans, roles are part of them. A change counts on the engines that the newest plan leaves a service
    on. A plan that is new counts as a change, and a change that did not know of it is void.
    """

    def __init__(self) -> None:
        self._peers: MeshPeers | None = None  # whose pools these are
        self._pools: dict[tuple[str, ...], _Pool] = {}  # by services

    def __repr__(self) -> str:
        return f"<RoleBalancer {list(self._pools.values())}>"

    def rebalance(self, view: ClusterView, num_waiting: Mapping[str, int], now: float) -> list[RoleChange]:
        """Make at most one change a pool, none while a shortage is young or the last change has yet to show."""
        if view.peers is not self._peers:
            self._peers = view.peers
            self._form_pools(view.peers.engines)
        changes: list[RoleChange] = []
        for services, pool in self._pools.items():
            engines = [view.engines[id_] for id_ in pool.members if id_ in view.engines]
            changes += pool.rebalance(engines, sum([num_waiting.get(service, 0) for service in services]), now)
        return changes

    def _form_pools(self, engines: Iterable[MeshPeer]) -> None:
        known, self._pools = self._pools, {}
        for services, members in _shared(engines):
            pool = self._pools[services] = known.get(services) or _Pool()
            pool.members = members


def _shared(engines: Iterable[MeshPeer]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield services with the engines that share them."""
    pools: list[tuple[set[str], list[str]]] = []
    for engine in engines:
        services, members = set(engine.services), [engine.id]
        apart = list[tuple[set[str], list[str]]]()
        for pool in pools:
            if services.isdisjoint(pool[0]):
                apart.append(pool)
            else:
                services, members = services | pool[0], [*pool[1], *members]
        pools = [*apart, (services, members)]
    for services, members in pools:
        yield tuple(sorted(services)), sorted(members)


class _Pool:
    """A pool and the balance of its roles."""

    def __init__(self) -> None:
        self.members: list[str] = []
        self._shortage: _Shortage | None = None
        self._known: dict[str, tuple[Role, int]] = {}  # roles, and numbers of plans
        self._changed_at = -inf
        self._changed_to: Role | None = None

    def __repr__(self) -> str:
        return f"<{self.members}: {self._shortage}, last change at {self._changed_at}>"

    def rebalance(self, engines: Sequence[EngineView], num_waiting: int, now: float) -> list[RoleChange]:
        self._notice_changes(engines, now)
        prefill = [engine for engine in engines if engine.role is Role.PREFILL]
        decode = [engine for engine in engines if engine.role is not Role.PREFILL]
        change = _more_prefill(prefill, decode, num_waiting) or _more_decode(prefill, decode)
        if not self._has_lasted(change, now) or change is None or not self._has_shown(change[1], now):
            return []
        engine, role = change
        self._changed_at, self._changed_to, self._shortage = now, role, None
        return [RoleChange(engine.id, SetRole(role, engine.num_role_changes, _plan(engine)))]

    def _notice_changes(self, engines: Iterable[EngineView], now: float) -> None:
        """Others' changes count as one's own, and so do plans."""
        known = {engine.id: (engine.role, _plan(engine)) for engine in engines}
        for id_, (role, plan) in known.items():
            if self._known.get(id_, (role, plan)) != (role, plan):
                self._changed_at, self._changed_to = now, role
        self._known = known

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


def _plan(engine: EngineView) -> int:
    """The number of the newest plan that it knows of."""
    return 0 if engine.place is None else engine.place.number


def _more_prefill(
    prefill: list[EngineView], decode: list[EngineView], num_waiting: int
) -> tuple[EngineView, Role] | None:
    """The decode engine with the least to decode, if requests wait for prefill engines and the others can do without.

    They will have its decodes besides their own, and more of them: if prefills are what holds requests up, one engine
    more lets as many more requests through.
    """
    spare = _not_needed(decode)
    if not num_waiting or not spare or any(engine.num_prefills == 0 for engine in prefill):
        return None
    more = (len(prefill) + 1) / max(1, len(prefill))
    if sum(map(fullness, decode)) * more / (len(decode) - 1) > SPARE:
        return None
    return min(spare, key=lambda engine: (engine.num_running, engine.num_tokens, engine.id)), Role.PREFILL


def _not_needed(decode: Sequence[EngineView]) -> list[EngineView]:
    """Those that may take another role, and of whose services each has another engine that decodes it, also when the
    newest plan is carried out.
    """
    newest = max(map(_plan, decode), default=0)
    places = [engine.place for engine in decode if engine.place is not None and engine.place.number == newest]
    placed = {service for place in places for service in place.services}

    def stays(engine: EngineView, service: str) -> bool:
        return service not in placed or (engine.place is not None and service in engine.place.services)

    remaining = Counter(service for engine in decode for service in engine.services if stays(engine, service))
    flexible = [engine for engine in decode if not engine.keeps_role]
    return [one for one in flexible if all(remaining[name] - stays(one, name) >= 1 for name in one.services)]


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
