"""No disaggregation: all engines are alike, and the one with the fewest tokens in flight does both phases (vLLM)."""

from router.cluster import Candidates, ClusterView
from router.policies.candidates import find_candidates, load, route
from router.policies.policy import Decision, Policy
from router.view import RequestView


class Colocated(Policy):
    name = "colocated"

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        engine = min(found.prefill + found.decode, key=load)
        return route(request, "colocated", engine, engine, now)
