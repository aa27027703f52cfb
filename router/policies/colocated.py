"""No disaggregation, prefills first (vLLM without chunked prefill): all engines are alike and do both phases.

A request goes at once to the engine with the fewest tokens in flight, whatever its role, and waits there, first come,
first served. While a prompt is computed, decodes wait.
"""

from heapq import nsmallest
from typing import ClassVar

from mesh.wire.control import PrefillMode, PrefillOrder
from router.policies.capabilities import ForAlikeEngines
from router.policies.parts.candidates import find_candidates, load, route
from router.policies.parts.early_rejection import LENGTHS, MOST_TRIED, Way, first_kept
from router.policies.policy import BaselineParameters, Decision, Policy, PolicyEntry
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView


class Colocated(Policy, ForAlikeEngines):
    name = "colocated"
    mode: ClassVar = PrefillMode.FIRST

    def __init__(self, parameters: BaselineParameters) -> None:
        self._rejects_late = parameters.reject_late
        self.capabilities = (LENGTHS,) if parameters.reject_late else ()

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        engines = found.prefill + found.decode
        if not self._rejects_late:
            return self._way(request, min(engines, key=load), now).dispatch
        ways = (self._way(request, engine, now) for engine in nsmallest(MOST_TRIED, engines, key=load))
        return first_kept(request, ways, now)

    def _way(self, request: RequestView, engine: EngineView, now: float) -> Way:
        dispatch = route(request, self.name, engine, engine, now, mode=self.mode, order=PrefillOrder.ARRIVAL)
        return Way(dispatch, engine, engine)


ENTRY = PolicyEntry("colocated", lambda parameters, _: Colocated(parameters), BaselineParameters)
