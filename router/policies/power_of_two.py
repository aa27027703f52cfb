"""Power of two choices: of two engines sampled at random, the one with fewer tokens in flight."""

from collections.abc import Sequence
from random import Random

from router.policies.parts.candidates import find_candidates, load, route
from router.policies.policy import Decision, Policy, PolicyEntry, QueueParameters
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView


class PowerOfTwo(Policy):
    name = "power_of_two"

    def __init__(self, parameters: QueueParameters, random: Random) -> None:
        self._mode, self._order = parameters.mode, parameters.order
        self._random = random

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        prefill_engine = self._choose(found.prefill_engines)
        decode_engine = self._choose(found.decode_engines_for(prefill_engine))
        return route(request, "power of two", prefill_engine, decode_engine, now, mode=self._mode, order=self._order)

    def _choose(self, engines: Sequence[EngineView]) -> EngineView:
        return min(self._random.sample(engines, min(2, len(engines))), key=load)


ENTRY = PolicyEntry("power_of_two", PowerOfTwo, QueueParameters)
