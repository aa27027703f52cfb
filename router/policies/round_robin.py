"""Round robin: engines take turns, prefills and decodes each in their own. Looks at nothing else."""

from collections.abc import Sequence

from router.policies.parts.candidates import find_candidates, route
from router.policies.policy import Decision, Policy, PolicyEntry
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView


class RoundRobin(Policy):
    name = "round_robin"

    def __init__(self) -> None:
        self._last_prefill_engine = ""
        self._last_decode_engine = ""

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        prefill_engine = _next_after(self._last_prefill_engine, found.prefill_engines)
        decode_engines = found.decode_engines_for(prefill_engine)
        decode_engine = (
            prefill_engine
            if decode_engines == (prefill_engine,)
            else _next_after(self._last_decode_engine, decode_engines)
        )
        self._last_prefill_engine, self._last_decode_engine = prefill_engine.id, decode_engine.id
        return route(request, "round robin", prefill_engine, decode_engine, now)


def _next_after(last: str, engines: Sequence[EngineView]) -> EngineView:
    """Engines may come and go between turns, so a turn is an id, not an index."""
    ordered = sorted(engines, key=lambda engine: engine.id)
    return next((engine for engine in ordered if engine.id > last), ordered[0])


ENTRY = PolicyEntry("round_robin", lambda _, __: RoundRobin())
