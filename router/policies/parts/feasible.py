"""Chooses which waiting requests to serve when not all can make it."""

import heapq
from collections.abc import Sequence

from router.policies.parts.outlook import prefill_speed
from router.view.cluster_view import ClusterView
from router.view.engine_view import RequestView


def feasible_first(waiting: Sequence[RequestView], view: ClusterView, now: float) -> Sequence[RequestView]:
    """Return those that wait in an order in which as many as can be served in time come first, then the others."""
    if len(waiting) < 2:
        return waiting
    left_out: set[str] = set()
    for service in dict.fromkeys(request.service for request in waiting):
        found = view.candidates(service, 1)
        if found is None:
            continue
        of_service = [request for request in waiting if request.service == service]
        work_s = [found.prefill_engines[0].prefill_s(service, request.num_tokens) for request in of_service]
        _, rest = split_feasible(of_service, work_s, sum(map(prefill_speed, found.prefill_engines)), now)
        left_out.update(request.id for request in rest)
    if not left_out:
        return waiting
    feasible = [request for request in waiting if request.id not in left_out]
    return feasible + [request for request in waiting if request.id in left_out]


def split_feasible(
    waiting: Sequence[RequestView], work_s: Sequence[float], speed: float, starts_at: float
) -> tuple[list[RequestView], list[RequestView]]:
    """Split requests into those that can all meet their deadlines one after the other, as many as possible, and those
    left over.

    Moore and Hodgson (1968), optimal for one machine: take requests by deadline; whenever one would be late, leave out
    the longest taken so far. ``work_s`` is that of each; ``speed``: seconds of it done each second, by all engines that
    prefill, from ``starts_at`` on. Of different priorities, the lower one is left out first. Both lists keep the order.
    """
    if speed <= 0:
        return [], list(waiting)
    taken: list[tuple[int, float, int]] = []  # least important and longest first
    left_out: set[int] = set()
    ends_at = starts_at
    for index in sorted(range(len(waiting)), key=lambda index: waiting[index].deadline):
        request, seconds = waiting[index], work_s[index] / speed
        heapq.heappush(taken, (request.priority, -seconds, index))
        ends_at += seconds
        if ends_at > request.deadline:
            _, negative_s, longest = heapq.heappop(taken)
            ends_at += negative_s
            left_out.add(longest)
    kept = [request for index, request in enumerate(waiting) if index not in left_out]
    return kept, [waiting[index] for index in sorted(left_out)]
