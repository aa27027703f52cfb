"""All engines that one gateway knows, and which of them may do what for a service."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from mesh.wire.control import ProcessState, Role
from router.view.engine_view import EngineView, PrefillPace, turn_of

Engines = tuple[EngineView, ...]


class Members(NamedTuple):
    """The engines of one role that serve one service.

    ``paces``: how fast each of them prefills (`ServiceView.pace`). ``steps_s`` and ``turns``: of the service
    there, what a step takes and how many its turn lasts (`turn_of`).
    """

    engines: Engines
    paces: tuple[PrefillPace, ...]
    steps_s: tuple[float, ...]
    turns: tuple[int, ...]

    @classmethod
    def of(cls, service: str, engines: Iterable[EngineView]) -> "Members":
        engines = tuple(engines)
        paces = tuple([engine.services[service].pace for engine in engines])
        turns = [turn_of(service, engine) for engine in engines]
        steps_s, num_steps = tuple([turn.step_s for turn in turns]), tuple([turn.num_steps for turn in turns])
        return cls(engines, paces, steps_s, num_steps)

    def __add__(self, more: "Members") -> "Members":  # type: ignore[override]
        steps_s, turns = self.steps_s + more.steps_s, self.turns + more.turns
        return Members(self.engines + more.engines, self.paces + more.paces, steps_s, turns)


NOBODY = Members((), (), (), ())
ROLES = Role.PREFILL, Role.MULTIPLEX, Role.DECODE  # what is kept by role is in this order


class MeshPeer(NamedTuple):
    """What an engine that takes requests may do."""

    id: str
    role: Role
    services: frozenset[str]


class MeshPeers(msgspec.Struct, frozen=True):
    """Who there is, of those that take requests. The same object until somebody comes, goes or changes its place.

    ``gateways``: their ids, in order, with that of this ``gateway`` among them.
    """

    gateway: str
    gateways: tuple[str, ...]
    engines: tuple[MeshPeer, ...]

    @classmethod
    def of(cls, gateway: str, others: Iterable[str], engines: Iterable[EngineView]) -> "MeshPeers":
        ready = ProcessState.READY
        return cls(
            gateway,
            tuple(sorted({gateway, *others})),
            tuple([MeshPeer(one.id, one.role, frozenset(one.services)) for one in engines if one.state is ready]),
        )


class Candidates(msgspec.Struct, frozen=True):
    """The engines that may serve a request, by what they may do for it.

    Any engine can do everything, so serving goes on with whatever is left: decode engines prefill when no other
    engine may, and prefill engines decode when no other is left.
    """

    prefill: Engines  # prefill only, and hand over
    multiplex: Engines  # prefill between decodes, and keep
    decode: Engines  # take over what was prefilled elsewhere
    prefill_engines: Engines  # all that may prefill, for whatever follows
    paces: tuple[PrefillPace, ...]  # theirs
    steps_s: tuple[float, ...]  # theirs
    turns: tuple[int, ...]  # theirs

    @classmethod
    def by_role(cls, service: str, engines: Sequence[EngineView]) -> "Candidates":
        members = [Members.of(service, [engine for engine in engines if engine.role is role]) for role in ROLES]
        return cls.of(*members)

    def among(self, service: str, ids: Collection[str]) -> "Candidates":
        """Return those of these engines that are in a group, by what they may do if there are no others."""
        engines = {engine.id: engine for engine in (*self.prefill, *self.multiplex, *self.decode) if engine.id in ids}
        return Candidates.by_role(service, list(engines.values()))

    @classmethod
    def of(cls, prefill: Members, multiplex: Members, decode: Members) -> "Candidates":
        """Engines of these roles."""
        keeping = multiplex if multiplex.engines else NOBODY if prefill.engines else decode
        taking_over = decode.engines + multiplex.engines or prefill.engines
        return cls(prefill.engines, keeping.engines, taking_over, *(prefill + keeping))

    def keeps(self, prefill_engine: EngineView) -> bool:
        """Return whether what is prefilled on ``prefill_engine`` is decoded there, too."""
        return prefill_engine.role is not Role.PREFILL or self.decode is self.prefill

    def decode_engines_for(self, prefill_engine: EngineView) -> Engines:
        """Return where a request may decode after its prefill on ``prefill_engine``: there, if that engine decodes."""
        return (prefill_engine,) if self.keeps(prefill_engine) else self.decode


class _Place(NamedTuple):
    role: int  # in `ROLES`
    position: int  # among the engines of that role


@dataclass(frozen=True, slots=True)
class _Roles:
    """Ids of the engines that serve one service, each one's place, and the tokens that the smallest pool can hold."""

    serving: tuple[str, ...]
    places: Mapping[str, _Place]
    smallest_pool: int

    @classmethod
    def of(cls, service: str, engines: Iterable[EngineView]) -> "_Roles":
        ready = ProcessState.READY
        serving = [engine for engine in engines if engine.state is ready and service in engine.services]
        places: dict[str, _Place] = {}
        for number, role in enumerate(ROLES):
            of_role = [engine.id for engine in serving if engine.role is role]
            places |= {id_: _Place(number, index) for index, id_ in enumerate(of_role)}
        pools = [engine.services[service].num_slots for engine in serving]
        return cls(tuple([engine.id for engine in serving]), places, min(pools, default=0))

    def members(self, service: str, engines: Mapping[str, EngineView]) -> list[Members]:
        """Return the engines of the pool by their roles."""
        ids: list[list[str]] = [[] for _ in ROLES]
        for id_, place in self.places.items():
            ids[place.role].append(id_)
        return [Members.of(service, map(engines.__getitem__, of_role)) for of_role in ids]

    def renewed(
        self, service: str, members: Sequence[Members], engines: Mapping[str, EngineView], changed: Iterable[str]
    ) -> list[Members]:
        """The same members with new views of those that have ``changed``."""
        renewed = list(members)
        for role in {self.places[id_].role for id_ in changed if id_ in self.places}:
            known = members[role]
            those, paces = list(known.engines), list(known.paces)
            steps_s, turns = list(known.steps_s), list(known.turns)
            for id_ in changed:
                place = self.places.get(id_)
                if place is not None and place.role == role:
                    engine, position = engines[id_], place.position
                    those[position] = engine
                    steps_s[position], turns[position] = turn_of(service, engine)
                    paces[position] = engine.services[service].pace
            renewed[role] = Members(tuple(those), tuple(paces), tuple(steps_s), tuple(turns))
        return renewed


class ClusterView:
    """All living engines by id, in the order of their ids. Never changes; what is asked of it often is kept.

    ``peers``: all that live, be they left out of this view or not.
    """

    __slots__ = ("_candidates", "_members", "_roles", "engines", "peers")

    def __init__(
        self,
        engines: Mapping[str, EngineView],
        roles: dict[str, _Roles] | None = None,
        peers: MeshPeers | None = None,
    ) -> None:
        self.engines = engines
        self.peers = MeshPeers.of("", (), engines.values()) if peers is None else peers
        self._roles: dict[str, _Roles] = {} if roles is None else roles
        self._members: dict[str, list[Members]] = {}  # by service
        self._candidates: dict[str, Candidates] = {}

    def __repr__(self) -> str:
        return f"<ClusterView {list(self.engines)}>"

    def with_loads(self, engines: Mapping[str, EngineView], changed: Iterable[str]) -> "ClusterView":
        """The same engines, of which only loads have ``changed`` (`have_same_place`)."""
        view = ClusterView(engines, self._roles, self.peers)
        for service, members in self._members.items():
            view._members[service] = self._roles[service].renewed(service, members, engines, changed)
        return view

    def serves(self, service: str) -> bool:
        """Return whether any engine takes requests of a service."""
        return bool(self._roles_for(service).serving)

    def serving(self, service: str) -> Engines:
        """The engines that take requests of a service: ready ones that have it."""
        return tuple(map(self.engines.__getitem__, self._roles_for(service).serving))

    def smallest_pool(self, service: str) -> int:
        """Return how many tokens of KV each engine that serves it can hold; 0 if none does."""
        return self._roles_for(service).smallest_pool

    def why_unserved(self, service: str) -> str:
        """Say that nobody serves it, and what the first engine tells that should."""
        told = [
            f"; {one.id}: {it.reason}" for one in self.engines.values() for it in one.failed if it.service == service
        ]
        return f"no engine is ready to serve {service}{told[0] if told else ''}"

    def _roles_for(self, service: str) -> _Roles:
        roles = self._roles.get(service)
        if roles is None:
            roles = self._roles[service] = _Roles.of(service, self.engines.values())
        return roles

    def candidates(self, service: str, num_tokens: int) -> Candidates | None:
        """Return those serving engines whose KV pool could ever hold so many tokens; None if there is none."""
        roles = self._roles_for(service)
        if num_tokens <= roles.smallest_pool:
            return self._all_candidates(service, roles)
        fitting = [e for e in self.serving(service) if e.services[service].can_ever_hold(num_tokens)]
        return Candidates.by_role(service, fitting) if fitting else None

    def _all_candidates(self, service: str, roles: _Roles) -> Candidates:
        candidates = self._candidates.get(service)
        if candidates is None:
            members = self._members.get(service)
            if members is None:
                members = self._members[service] = roles.members(service, self.engines)
            candidates = self._candidates[service] = Candidates.of(*members)
        return candidates

    def keeping(self, service: str) -> "ClusterView":
        """Return the engines that prefill a service, as if each kept what it prefills."""
        serving = self.serving(service)
        prefilling = [engine for engine in serving if engine.role is not Role.DECODE] or list(serving)
        if len(prefilling) == len(self.engines) and all(one.role is Role.MULTIPLEX for one in prefilling):
            return self
        kept = {one.id: msgspec.structs.replace(one, role=Role.MULTIPLEX) for one in prefilling}
        return ClusterView(kept, peers=self.peers)

    def without(self, engines: Collection[str]) -> "ClusterView":
        if not engines:
            return self
        left = {id_: engine for id_, engine in self.engines.items() if id_ not in engines}
        return ClusterView(left, peers=self.peers)
