"""KV aware: the engine with the least to compute and to hold, as the router of NVIDIA Dynamo reckons it.

The cost of an engine is ``overlap_weight`` times the prompt tokens that it would have to compute, plus the context
tokens of all requests that it holds. The request's own prompt counts among the former, less what is cached there.
(ai-dynamo/dynamo, "KV cache routing": ``overlap_score_weight * prefill_blocks + decode_blocks``; here in tokens.) Where
engines are split by phase, prefill engines are compared by the first part and decode engines by the second. No promise
is looked at.
"""

from typing import Annotated

import msgspec

from mesh.wire.control import PrefillOrder
from router.policies.capabilities import UsesPrefixes
from router.policies.parts.candidates import find_candidates, load, route
from router.policies.policy import Decision, Policy, PolicyEntry
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import PACE_TOKENS, EngineView, RequestView


class KvAwareParameters(msgspec.Struct, frozen=True):
    """``overlap_weight``: of a prompt token that is to be computed, beside a context token that is held."""

    overlap_weight: Annotated[float, msgspec.Meta(ge=0)] = 1.0


class KvAware(Policy, UsesPrefixes):
    name = "kv_aware"

    def __init__(self, parameters: KvAwareParameters) -> None:
        self._weight = parameters.overlap_weight

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found

        def cost(engine: EngineView) -> tuple[float, str]:
            held = engine.num_tokens if found.keeps(engine) else 0
            return self._weight * _to_compute(engine, request, now) + held, engine.id

        prefill_engine = min(found.prefill or found.prefill_engines, key=cost)
        decode_engine = min(found.decode_engines_for(prefill_engine), key=load)
        numbers = {"cost_tokens": cost(prefill_engine)[0]}
        return route(
            request, "least cost", prefill_engine, decode_engine, now, order=PrefillOrder.ARRIVAL, numbers=numbers
        )


def _to_compute(engine: EngineView, request: RequestView, now: float) -> float:
    """Return prompt tokens: the backlog, at the engine's own pace, and what the request adds to it."""
    pace_s = engine.services[request.service].pace.many_s
    backlog = engine.backlog_s(now) / pace_s * PACE_TOKENS if pace_s else 0.0
    return backlog + request.num_tokens - request.cached.get(engine.id, 0)


ENTRY = PolicyEntry("kv_aware", lambda parameters, _: KvAware(parameters), KvAwareParameters)
