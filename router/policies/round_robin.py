"""Round robin: engines take turns, prefills and decodes each in their own. Looks at nothing else."""

from collections.abc import Sequence

from router.policies.parts.candidates import find_candidates, route
from router.policies.policy import Decision, Policy
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView


class RoundRobin(Policy):
    name = "round_robin"

    def __init__(self) -> None:
        self._last_entrance = ""
        self._last_decoder = ""

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        entrance = _next_after(self._last_entrance, found.entrances)
        decoders = found.decoders_for(entrance)
        decoder = entrance if decoders == (entrance,) else _next_after(self._last_decoder, decoders)
        self._last_entrance, self._last_decoder = entrance.id, decoder.id
        return route(request, "round robin", entrance, decoder, now)


def _next_after(last: str, engines: Sequence[EngineView]) -> EngineView:
    """Engines may come and go between turns, so a turn is an id, not an index."""
    ordered = sorted(engines, key=lambda engine: engine.id)
    return next((engine for engine in ordered if engine.id > last), ordered[0])
