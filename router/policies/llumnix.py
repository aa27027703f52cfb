"""Llumnix: at once to the engine with the highest freeness, the head room in tokens of each of its running requests.

Engines compute it (`ServiceStatus.freeness`): KV capacity less the virtual usages of their requests, over the batch
size (Llumnix, section 4.4). What this gateway has sent and no status counts yet is taken off. Engines queue first come,
first served; with ``[rescheduling]`` in the topology they move requests afterwards by themselves.
"""

from mesh.messages import PrefillOrder
from router.cluster import Candidates, ClusterView
from router.policies.candidates import find_candidates, route
from router.policies.policy import Decision, Policy
from router.view import EngineView, RequestView


class Llumnix(Policy):
    name = "llumnix"

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found

        def rank(engine: EngineView) -> tuple[float, int, str]:
            return -engine.services[request.service].freeness, engine.num_tokens, engine.id

        entrance = min(found.entrances, key=rank)
        decoder = min(found.decoders_for(entrance), key=rank)
        numbers = {
            "prefill_freeness": entrance.services[request.service].freeness,
            "decode_freeness": decoder.services[request.service].freeness,
        }
        return route(request, "freest", entrance, decoder, now, order=PrefillOrder.ARRIVAL, numbers=numbers)
