"""Strict disaggregation (DistServe): prefills on prefill engines only, however long they wait there.

A request goes at once to the prefill engine that will be done first, and decodes on the decode engine with the fewest
tokens in flight. Nothing limits the queue of a prefill engine, which is first come, first served, and no deadline is
looked at.

Llumnix has disaggregation in two rules, one of dispatch and one of migration. A request is sent to a prefill engine,
and no decode engine is named. The engines' own rule `role` (concepts/rescheduling.md) moves what begins to decode there
to an engine that decodes.
"""

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import chain, islice
from typing import ClassVar, Literal

from mesh.wire.control import PrefillOrder
from router.policies.capabilities import ForSplitEngines
from router.policies.parts.candidates import find_candidates, load, route
from router.policies.parts.early_rejection import LENGTHS, MOST_TRIED, Way, first_kept
from router.policies.parts.feasible import FeasibleFirst
from router.policies.policy import BaselineParameters, Decision, Policy, PolicyEntry, Wait
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView


class DisaggregatedParameters(BaselineParameters, frozen=True):
    """``reject_late``: refuse at once what no engine is predicted to serve without a broken promise (Mooncake).
    ``after_prefill``: the prefill engine hands over to the decode engine that was chosen at dispatch, or the request
    migrates to one that the prefill engine chooses then, which takes `[rescheduling]` with the trigger `role`.
    """

    after_prefill: Literal["hand_over", "migrate"] = "hand_over"


class Disaggregated(Policy, ForSplitEngines):
    name = "disaggregated"
    order: ClassVar = PrefillOrder.ARRIVAL

    def __init__(self, parameters: DisaggregatedParameters) -> None:
        self._parameters = parameters
        self.capabilities = (LENGTHS, FeasibleFirst()) if parameters.reject_late else ()

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        ways = self._ways(request, found, now)
        first = next(ways, None)
        if first is None:
            return Wait("no decode engine has room in its KV pool")
        if not self._parameters.reject_late:
            return first.dispatch
        return first_kept(request, islice(chain((first,), ways), MOST_TRIED), now)

    def _ways(self, request: RequestView, found: Candidates, now: float) -> Iterator[Way]:
        """The best first: those of the prefill engine that is done first, then, with early rejection, of the others."""
        prefill_engines = nsmallest(
            MOST_TRIED if self._parameters.reject_late else 1,
            found.prefill or found.multiplex,
            key=lambda engine: (engine.wait_s(request.service, now), engine.id),
        )
        for prefill_engine in prefill_engines:
            for decode_engine in self._decode_engines(request, found, prefill_engine):
                dispatch = route(request, self.name, prefill_engine, decode_engine, now, order=self.order)
                yield Way(dispatch, prefill_engine, decode_engine)

    def _decode_engines(
        self, request: RequestView, found: Candidates, prefill_engine: EngineView
    ) -> Sequence[EngineView]:
        """The least loaded first."""
        if self._parameters.after_prefill == "migrate":
            return (prefill_engine,)
        service, num_tokens = request.service, request.num_tokens + 1
        engines = found.decode_engines_for(prefill_engine)
        return sorted((engine for engine in engines if engine.services[service].can_hold(num_tokens)), key=load)


ENTRY = PolicyEntry("disaggregated", lambda parameters, _: Disaggregated(parameters), DisaggregatedParameters)
