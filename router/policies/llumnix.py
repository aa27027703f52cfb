"""Llumnix: at once to the engine with the highest freeness, the head room in tokens of each of its running requests.

Engines compute it (`ServiceStatus.freeness`): KV capacity less the virtual usages of their requests, over the batch
size (Llumnix, section 4.4). What this gateway has sent and no status counts yet is taken off, and so is the request
itself: an engine where few run is the freest, but a long prompt may not fit there. Engines queue first come, first
served; with ``[rescheduling]`` in the topology they move requests afterwards by themselves.
"""

from engines.transfers.freeness import with_one_more
from mesh.wire.control import PrefillOrder
from router.policies.capabilities import ForAlikeEngines
from router.policies.parts.candidates import find_candidates, route
from router.policies.policy import Decision, Policy, PolicyEntry
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView


class Llumnix(Policy, ForAlikeEngines):
    name = "llumnix"

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found

        def rank(engine: EngineView) -> tuple[float, int, str]:
            return -_freeness(engine, request), engine.num_tokens, engine.id

        prefill_engine = min(found.prefill_engines, key=rank)
        decode_engine = min(found.decode_engines_for(prefill_engine), key=rank)
        numbers = {
            "prefill_freeness": _freeness(prefill_engine, request),
            "decode_freeness": _freeness(decode_engine, request),
        }
        return route(request, "freest", prefill_engine, decode_engine, now, order=PrefillOrder.ARRIVAL, numbers=numbers)


def _freeness(engine: EngineView, request: RequestView) -> float:
    """With the request. What is kept free beside requests of high priority is there for the next one of them."""
    service = engine.services[request.service]
    free = service.bare_freeness if request.priority > 0 else service.freeness
    return with_one_more(free, service.num_sharers, request.num_tokens)


ENTRY = PolicyEntry("llumnix", lambda _, __: Llumnix())
