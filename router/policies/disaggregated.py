"""Strict disaggregation (DistServe): prefills on prefill engines only, however long they wait there.

A request goes at once to the prefill engine that will be done first, and decodes on the decode engine with the fewest
tokens in flight. Nothing limits the queue of a prefill engine, which is first come, first served, and no deadline is
looked at.
"""

from typing import ClassVar

from mesh.messages import PrefillOrder
from router.cluster import Candidates, ClusterView
from router.policies.candidates import find_candidates, load, reject_late, route
from router.policies.policy import BaselineParameters, Decision, Policy, Wait
from router.view import RequestView


class Disaggregated(Policy):
    name = "disaggregated"
    order: ClassVar = PrefillOrder.ARRIVAL

    def __init__(self, parameters: BaselineParameters) -> None:
        self._rejects_late = parameters.reject_late

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        entrance = min(found.prefill or found.multiplex, key=lambda engine: (engine.backlog_s(now), engine.id))
        decoders = [
            engine
            for engine in found.decoders_for(entrance)
            if engine.services[request.service].can_hold(request.num_tokens + 1)
        ]
        if not decoders:
            return Wait("no decode engine has room in its KV pool")
        dispatch = route(request, self.name, entrance, min(decoders, key=load), now, order=self.order)
        return reject_late(dispatch, request, now) if self._rejects_late else dispatch
