"""Join the shortest queue: whatever engine has the fewest requests, queued and running (Aladdin's baseline)."""

from router.policies.parts.candidates import find_candidates, route
from router.policies.policy import Decision, Policy, PolicyEntry, QueueParameters
from router.view.cluster_view import Candidates, ClusterView
from router.view.engine_view import EngineView, RequestView


class JoinShortestQueue(Policy):
    name = "join_shortest_queue"

    def __init__(self, parameters: QueueParameters) -> None:
        self._mode, self._order = parameters.mode, parameters.order

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        prefill_engine = min(found.prefill_engines, key=queue_length)
        decode_engine = min(found.decode_engines_for(prefill_engine), key=queue_length)
        return route(request, "shortest queue", prefill_engine, decode_engine, now, mode=self._mode, order=self._order)


def queue_length(engine: EngineView) -> tuple[int, int, str]:
    """Requests; tokens in flight decide among equals."""
    return engine.num_requests, engine.num_tokens, engine.id


ENTRY = PolicyEntry("join_shortest_queue", lambda parameters, _: JoinShortestQueue(parameters), QueueParameters)
