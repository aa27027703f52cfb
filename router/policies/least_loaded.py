"""INFaaS: whatever engine has the fewest tokens in flight. Looks at no deadline and never waits for a better moment."""

from router.policies.parts.candidates import find_candidates, load, route
from router.policies.policy import Decision, Policy, PolicyEntry
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import RequestView


class LeastLoaded(Policy):
    name = "least_loaded"

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        prefill_engine = min(found.prefill_engines, key=load)
        return route(
            request, "least loaded", prefill_engine, min(found.decode_engines_for(prefill_engine), key=load), now
        )


ENTRY = PolicyEntry("least_loaded", lambda _, __: LeastLoaded())
