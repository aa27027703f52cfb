"""All engines that one gateway knows, and which of them may do what for a service."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mesh.messages import ProcessState, Role
from router.view import EngineView

Engines = tuple[EngineView, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The engines that may serve a request, by what they may do for it.

    Any engine can do everything, so serving goes on with whatever is left: decode engines prefill when no other
    engine may, and prefill engines decode when no other is left.
    """

    prefill: Engines  # prefill only, and hand over
    multiplex: Engines  # prefill between decodes, and keep
    decode: Engines  # take over what was prefilled elsewhere

    @classmethod
    def by_role(cls, engines: Sequence[EngineView]) -> "Candidates":
        prefill = tuple([engine for engine in engines if engine.role is Role.PREFILL])
        multiplex = tuple([engine for engine in engines if engine.role is Role.MULTIPLEX])
        decode = tuple([engine for engine in engines if engine.role is Role.DECODE])
        return cls.of(prefill, multiplex, decode)

    @classmethod
    def of(cls, prefill: Engines, multiplex: Engines, decode: Engines) -> "Candidates":
        """Engines of these roles."""
        return cls(prefill, multiplex or (() if prefill else decode), decode + multiplex or prefill)

    @property
    def entrances(self) -> Engines:
        """All that may prefill, for whatever follows."""
        return self.prefill + self.multiplex

    def keeps(self, entrance: EngineView) -> bool:
        """Whether what is prefilled on ``entrance`` is decoded there, too."""
        return entrance.role is not Role.PREFILL or self.decode is self.prefill

    def decoders_for(self, entrance: EngineView) -> Engines:
        """Where a request may decode after its prefill on ``entrance``: there itself, if that engine decodes at all."""
        return (entrance,) if self.keeps(entrance) else self.decode


@dataclass(frozen=True, slots=True)
class _Roles:
    """Ids of the engines that serve one service, by role, and the tokens that the smallest of their pools can hold."""

    serving: tuple[str, ...]
    prefill: tuple[str, ...]
    multiplex: tuple[str, ...]
    decode: tuple[str, ...]
    smallest_pool: int

    @classmethod
    def of(cls, service: str, engines: Iterable[EngineView]) -> "_Roles":
        ready = ProcessState.READY
        serving = [engine for engine in engines if engine.state is ready and service in engine.services]
        prefill, multiplex, decode = (
            tuple([engine.id for engine in serving if engine.role is role])
            for role in (Role.PREFILL, Role.MULTIPLEX, Role.DECODE)
        )
        pools = [engine.services[service].num_slots for engine in serving]
        return cls(tuple([engine.id for engine in serving]), prefill, multiplex, decode, min(pools, default=0))


class ClusterView:
    """All living engines by id, in the order of their ids. Never changes; what is asked of it often is kept."""

    __slots__ = ("_candidates", "_roles", "engines")

    def __init__(self, engines: Mapping[str, EngineView], roles: dict[str, _Roles] | None = None) -> None:
        self.engines = engines
        self._roles: dict[str, _Roles] = {} if roles is None else roles
        self._candidates: dict[str, Candidates] = {}

    def __repr__(self) -> str:
        return f"<ClusterView {list(self.engines)}>"

    def with_loads(self, engines: Mapping[str, EngineView]) -> "ClusterView":
        """The same engines, of which only loads have changed (`has_same_place`)."""
        return ClusterView(engines, self._roles)

    def serves(self, service: str) -> bool:
        """Whether any engine takes requests of a service."""
        return bool(self._roles_for(service).serving)

    def serving(self, service: str) -> Engines:
        """The engines that take requests of a service: ready ones that have it."""
        return self._those(self._roles_for(service).serving)

    def _roles_for(self, service: str) -> _Roles:
        roles = self._roles.get(service)
        if roles is None:
            roles = self._roles[service] = _Roles.of(service, self.engines.values())
        return roles

    def _those(self, ids: Iterable[str]) -> Engines:
        return tuple(map(self.engines.__getitem__, ids))

    def candidates(self, service: str, num_tokens: int) -> Candidates | None:
        """Of the serving engines, those whose KV pool could ever hold so many tokens; None if there is none."""
        roles = self._roles_for(service)
        if num_tokens <= roles.smallest_pool:
            return self._all_candidates(service, roles)
        fitting = [e for e in self.serving(service) if e.services[service].can_ever_hold(num_tokens)]
        return Candidates.by_role(fitting) if fitting else None

    def _all_candidates(self, service: str, roles: _Roles) -> Candidates:
        candidates = self._candidates.get(service)
        if candidates is None:
            prefill, multiplex, decode = map(self._those, (roles.prefill, roles.multiplex, roles.decode))
            candidates = self._candidates[service] = Candidates.of(prefill, multiplex, decode)
        return candidates

    def without(self, engines: Collection[str]) -> "ClusterView":
        if not engines:
            return self
        return ClusterView({id_: engine for id_, engine in self.engines.items() if id_ not in engines})
