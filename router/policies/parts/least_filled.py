"""Chooses engines for requests without a promise: whoever has least of them, and takes on more.

How many an engine can compute beside its promises shows in how many wait there: it is sent more as it begins those.
"""

from collections import Counter
from collections.abc import Iterable

from router.policies.parts.candidates import route
from router.policies.policy import Decision, Policy, Reject, Wait
from router.view.cluster_view import ClusterView
from router.view.engine_view import EngineView, RequestView

DEPTH = 4  # that may wait on an engine
DEPTH_PART = 4  # or one for so many that run there, if that is more


class LeastFilled(Policy):
    """Every policy that is in force leaves such requests to this one."""

    def __init__(self) -> None:
        self._unbegun: Counter[str] = Counter()  # sent by this gateway, by engine

    @property
    def name(self) -> str:
        return "filling"

    def count(self, engines: Iterable[str]) -> None:
        """Count what this gateway has sent and no engine has begun: the engine of each."""
        self._unbegun = Counter(engines)

    def sent(self, engine: str) -> None:
        self._unbegun[engine] += 1

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision:
        serving = view.serving(request.service)
        fitting = [one for one in serving if one.services[request.service].can_ever_hold(request.num_tokens + 1)]
        if serving and not fitting:
            return Reject(f"the request has {request.num_tokens} tokens, which fit no engine's KV pool")
        open_ = [one for one in fitting if self._takes_more(one, request.service)]
        if not open_:
            return Wait("no engine has anything to spare" if serving else f"no engine serves {request.service}")
        engine = min(open_, key=lambda one: self._load(one, request.service))
        return route(request, "filled", engine, engine, now)

    def _takes_more(self, engine: EngineView, service: str) -> bool:
        waiting, running, _ = self._load(engine, service)
        return waiting < max(DEPTH, running // DEPTH_PART)

    def _load(self, engine: EngineView, service: str) -> tuple[int, int, str]:
        of_service = engine.services[service]
        return max(self._unbegun[engine.id], of_service.fillers_waiting), of_service.fillers_running, engine.id
