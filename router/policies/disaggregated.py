"""Strict disaggregation (DistServe): prefills on prefill engines only, first come, first served, however long the wait.

At most one prefill is queued behind the running one, because engines would reorder more by length; the rest waits in
the gateway, whose order is that of arrival for requests of one promise.
"""

from router.cluster import Candidates, ClusterView
from router.policies.candidates import find_candidates, load, route
from router.policies.policy import Decision, Policy, Wait
from router.view import RequestView


class Disaggregated(Policy):
    name = "disaggregated"

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        entrances = [engine for engine in found.prefill or found.multiplex if engine.num_prefills <= 1]
        if not entrances:
            return Wait("all prefill engines have a prefill queued")
        entrance = min(entrances, key=lambda engine: (engine.backlog_s(now), engine.id))
        decoders = [
            engine
            for engine in found.decoders_for(entrance)
            if engine.services[request.service].can_hold(request.num_tokens + 1)
        ]
        if not decoders:
            return Wait("no decode engine has room in its KV pool")
        return route(request, "disaggregated", entrance, min(decoders, key=load), now)
