"""INFaaS++, Llumnix's baseline: at once to the engine with the least KV memory in use or wanted by those that wait.

That is the fraction of its pool that the contexts of all its requests would fill, queued ones included (Llumnix,
section 6.1). Engines queue first come, first served.
"""

from mesh.wire.control import PrefillOrder
from router.policies.capabilities import ForAlikeEngines
from router.policies.parts.candidates import find_candidates, route
from router.policies.policy import Decision, Policy, PolicyEntry
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView


class Infaas(Policy, ForAlikeEngines):
    name = "infaas"

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found

        def memory_load(engine: EngineView) -> tuple[float, int, str]:
            return engine.num_tokens / engine.services[request.service].num_slots, engine.num_requests, engine.id

        prefill_engine = min(found.prefill_engines, key=memory_load)
        decode_engine = min(found.decode_engines_for(prefill_engine), key=memory_load)
        return route(request, "least memory load", prefill_engine, decode_engine, now, order=PrefillOrder.ARRIVAL)


ENTRY = PolicyEntry("infaas", lambda _, __: Infaas())
