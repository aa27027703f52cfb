"""All engines that one gateway knows, and which of them may do what for a service."""

from collections.abc import Collection, Mapping, Sequence
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


class ClusterView:
    """All living engines by id, in the order of their ids. Never changes; what is asked of it often is kept."""

    __slots__ = ("_candidates", "_serving", "_smallest_pools", "engines")

    def __init__(self, engines: Mapping[str, EngineView]) -> None:
        self.engines = engines
        self._serving: dict[str, Engines] = {}
        self._candidates: dict[str, Candidates] = {}
        self._smallest_pools: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<ClusterView {list(self.engines)}>"

    def serving(self, service: str) -> Engines:
        """The engines that take requests of a service: ready ones that have it."""
        serving = self._serving.get(service)
        if serving is None:
            ready = ProcessState.READY
            engines = self.engines.values()
            serving = tuple([engine for engine in engines if engine.state is ready and service in engine.services])
            self._serving[service] = serving
        return serving

    def candidates(self, service: str, num_tokens: int) -> Candidates | None:
        """Of the serving engines, those whose KV pool could ever hold so many tokens; None if there is none."""
        if service not in self._smallest_pools:
            pools = [engine.services[service].num_slots for engine in self.serving(service)]
            self._smallest_pools[service] = min(pools, default=0)
        if num_tokens <= self._smallest_pools[service]:
            return self._all_candidates(service)
        fitting = [e for e in self.serving(service) if e.services[service].can_ever_hold(num_tokens)]
        return Candidates.by_role(fitting) if fitting else None

    def _all_candidates(self, service: str) -> Candidates:
        candidates = self._candidates.get(service)
        if candidates is None:
            candidates = self._candidates[service] = Candidates.by_role(self.serving(service))
        return candidates

    def without(self, engines: Collection[str]) -> "ClusterView":
        if not engines:
            return self
        return ClusterView({id_: engine for id_, engine in self.engines.items() if id_ not in engines})
