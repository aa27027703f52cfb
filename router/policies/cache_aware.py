"""Cache aware, as vLLM's router has it: the engine that has most of the prompt cached, unless load is very uneven.

If numbers of requests are very unequal, the engine with the fewest takes the next one. Otherwise it goes where the
longest beginning of its prompt is cached, if that is share enough of it, else to the engine that was sent the least to
cache. Decode engines have no beginnings to share: of two drawn at random, the one with fewer tokens in flight takes
over (vllm-project/router, ``--prefill-policy cache_aware --decode-policy power_of_two``). No promise is looked at.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Annotated

import msgspec

from mesh.wire.control import PrefillOrder
from router.policies.capabilities import UsesPrefixes
from router.policies.parts.candidates import find_candidates, load, route
from router.policies.policy import Decision, Policy, PolicyEntry
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView


class CacheAwareParameters(msgspec.Struct, frozen=True):
    """``threshold``: the share of a prompt that must be cached for the cache to decide.

    ``most_apart``: requests by which engines may differ before load decides.
    ``most_times``: how many times as many requests as the least loaded one has, another may have before load decides.
    """

    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.3
    most_apart: Annotated[int, msgspec.Meta(ge=0)] = 64
    most_times: Annotated[float, msgspec.Meta(ge=1)] = 1.5


class CacheAware(Policy, UsesPrefixes):
    name = "cache_aware"

    def __init__(self, parameters: CacheAwareParameters, random: Random) -> None:
        self._parameters = parameters
        self._random = random
        self._sent: Counter[tuple[str, str]] = Counter()  # tokens to cache, by service and engine

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        rule, prefill_engine = self._choose(request, found.prefill or found.prefill_engines)
        self._sent[request.service, prefill_engine.id] += request.num_tokens - request.cached.get(prefill_engine.id, 0)
        taking_over = found.decode_engines_for(prefill_engine)
        decode_engine = min(self._random.sample(taking_over, min(2, len(taking_over))), key=load)
        return route(request, rule, prefill_engine, decode_engine, now, order=PrefillOrder.ARRIVAL)

    def _choose(self, request: RequestView, engines: Sequence[EngineView]) -> tuple[str, EngineView]:
        counts = [engine.num_requests for engine in engines]
        least, most = min(counts), max(counts)
        if most - least > self._parameters.most_apart and most > self._parameters.most_times * least:
            return "fewest requests", engines[counts.index(least)]
        warmest = max(engines, key=lambda engine: request.cached.get(engine.id, 0))
        if request.cached.get(warmest.id, 0) > self._parameters.threshold * request.num_tokens:
            return "most cached", warmest
        return "least sent", min(engines, key=lambda engine: (self._sent[request.service, engine.id], engine.id))


ENTRY = PolicyEntry("cache_aware", CacheAware, CacheAwareParameters)
