"""Strict disaggregation (DistServe): prefills on prefill engines only, however long they wait there.

A request goes at once to the prefill engine that will be done first, and decodes on the decode engine with the fewest
tokens in flight. Nothing limits the queue of a prefill engine, which is first come, first served, and no deadline is
looked at.

Or, as Llumnix has it, disaggregation is a rule of dispatch and one of migration: a request is sent to a prefill engine
without a word of any other one, and the engines' own rule `role` (concepts/rescheduling.md) moves what begins to decode
there to an engine that decodes.
"""

from typing import ClassVar, Literal

from mesh.wire.control import PrefillOrder
from router.policies.parts.candidates import find_candidates, load, reject_late, route
from router.policies.policy import BaselineParameters, Decision, Dispatch, Policy, PolicyEntry, Wait
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import RequestView


class DisaggregatedParameters(BaselineParameters, frozen=True):
    """``reject_late``: refuse at once what is predicted to miss its TTFT deadline (Mooncake's early rejection).
    ``after_prefill``: the prefill engine hands over to the decode engine that was chosen at dispatch, or the request
    migrates to one that the prefill engine chooses then, which takes `[rescheduling]` with the trigger `role`.
    """

    after_prefill: Literal["hand_over", "migrate"] = "hand_over"


class Disaggregated(Policy):
    name = "disaggregated"
    order: ClassVar = PrefillOrder.ARRIVAL

    def __init__(self, parameters: DisaggregatedParameters) -> None:
        self._parameters = parameters

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        prefill_engine = min(
            found.prefill or found.multiplex, key=lambda engine: (engine.wait_s(request.service, now), engine.id)
        )
        if self._parameters.after_prefill == "migrate":
            dispatch = route(request, self.name, prefill_engine, prefill_engine, now, order=self.order)
            return self._unless_late(dispatch, request, now)
        decode_engines = [
            engine
            for engine in found.decode_engines_for(prefill_engine)
            if engine.services[request.service].can_hold(request.num_tokens + 1)
        ]
        if not decode_engines:
            return Wait("no decode engine has room in its KV pool")
        dispatch = route(request, self.name, prefill_engine, min(decode_engines, key=load), now, order=self.order)
        return self._unless_late(dispatch, request, now)

    def _unless_late(self, dispatch: Dispatch, request: RequestView, now: float) -> Decision:
        return reject_late(dispatch, request, now) if self._parameters.reject_late else dispatch


ENTRY = PolicyEntry("disaggregated", lambda parameters, _: Disaggregated(parameters), DisaggregatedParameters)
