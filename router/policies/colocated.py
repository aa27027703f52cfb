"""No disaggregation, prefills first (vLLM without chunked prefill): all engines are alike and do both phases.

A request goes at once to the engine with the fewest tokens in flight, whatever its role, and waits there, first come,
first served. While a prompt is computed, decodes wait.
"""

from typing import ClassVar

from mesh.wire.control import PrefillMode, PrefillOrder
from router.policies.parts.candidates import find_candidates, load, reject_late, route
from router.policies.policy import BaselineParameters, Decision, Policy, PolicyEntry
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import RequestView


class Colocated(Policy):
    name = "colocated"
    mode: ClassVar = PrefillMode.FIRST

    def __init__(self, parameters: BaselineParameters) -> None:
        self._rejects_late = parameters.reject_late

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        engine = min(found.prefill + found.decode, key=load)
        dispatch = route(request, self.name, engine, engine, now, mode=self.mode, order=PrefillOrder.ARRIVAL)
        return reject_late(dispatch, request, now) if self._rejects_late else dispatch


ENTRY = PolicyEntry("colocated", lambda parameters, _: Colocated(parameters), BaselineParameters)
