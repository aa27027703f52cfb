"""Round robin: engines take turns, prefills and decodes each in their own. Looks at nothing else."""

from router.policies.parts.balance import in_turn
from router.policies.parts.candidates import find_candidates, route
from router.policies.policy import Decision, Policy, PolicyEntry
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import RequestView


class RoundRobin(Policy):
    name = "round_robin"

    def __init__(self) -> None:
        self._last_prefill_engine = ""
        self._last_decode_engine = ""

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        prefill_engine = in_turn(self._last_prefill_engine, found.prefill_engines)[0]
        decode_engines = found.decode_engines_for(prefill_engine)
        decode_engine = (
            prefill_engine
            if decode_engines == (prefill_engine,)
            else in_turn(self._last_decode_engine, decode_engines)[0]
        )
        self._last_prefill_engine, self._last_decode_engine = prefill_engine.id, decode_engine.id
        return route(request, "round robin", prefill_engine, decode_engine, now)


ENTRY = PolicyEntry("round_robin", lambda _, __: RoundRobin())
