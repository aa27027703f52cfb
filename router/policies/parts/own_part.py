"""The part of a large mesh in which a gateway looks first: its own group of engines (`router.policies.parts.groups`).

Where statuses may wait, all gateways see the same engines as the freest until the next statuses come, and would fill
them together. In its own group a gateway knows what was sent, as it sent it itself.
"""

from router.policies.capabilities import PlansRounds, SeesGateways
from router.policies.parts.groups import Grouping, Sizes
from router.policies.policy import Decision, Dispatch, Policy
from router.view.cluster_view import ClusterView
from router.view.engine_view import RequestView

SIZES = Sizes(smallest=8, largest=512)  # of groups, in engines that are alike


class OwnPart:
    """One gateway's. Policies that form groups or static batches themselves see the whole mesh at once."""

    def __init__(self) -> None:
        self._grouping = Grouping(SIZES)

    def decide(
        self, policy: Policy, request: RequestView, view: ClusterView, now: float
    ) -> tuple[Decision, ClusterView]:
        """Return the decision and what it was made from: the own part, or the whole view if nothing there fits."""
        if len(view.peers.gateways) > 1 and policy.offers(SeesGateways) is None and policy.offers(PlansRounds) is None:
            group = self._grouping.group_for(request.id, view.peers)
            part = ClusterView({id_: one for id_, one in view.engines.items() if id_ in group}, peers=view.peers)
            decision = policy.decide(request, part, now)
            if isinstance(decision, Dispatch):
                return decision, part
        return policy.decide(request, view, now), view
