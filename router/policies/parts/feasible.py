"""Chooses which waiting requests to serve when not all can make it."""

import heapq
from collections import defaultdict
from collections.abc import Sequence

from router.policies.capabilities import ReordersQueue
from router.policies.parts.outlook import prefill_speed
from router.view.cluster_view import ClusterView
from router.view.engine_view import EngineView, RequestView


class FeasibleFirst(ReordersQueue):
    """As many as can be served in time are tried first, then the others."""

    def rank(self, waiting: Sequence[RequestView], view: ClusterView, now: float) -> Sequence[RequestView]:
        left_out = left_over(waiting, view, now) if len(waiting) > 1 else ()
        if not left_out:
            return waiting
        feasible = [request for request in waiting if request.id not in left_out]
        return feasible + [request for request in waiting if request.id in left_out]


def left_over(waiting: Sequence[RequestView], view: ClusterView, now: float) -> set[str]:
    """Return which of those that wait are not among the most that can all be served in time, by their ids."""
    left_out: set[str] = set()
    sharing = defaultdict[tuple[str, ...], list[RequestView]](list)  # by the engines that they all wait for
    engines: dict[tuple[str, ...], Sequence[EngineView]] = {}
    for service in dict.fromkeys(request.service for request in waiting):
        found = view.candidates(service, 1)
        if found is not None:
            ids = tuple(engine.id for engine in found.prefill_engines)
            engines[ids] = found.prefill_engines
            sharing[ids] += [request for request in waiting if request.service == service]
    for ids, those in sharing.items():
        work_s = [engines[ids][0].prefill_s(request.service, request.num_tokens) for request in those]
        begins_at = now + min([engine.backlog_s(now) for engine in engines[ids]])
        _, rest = split_feasible(those, work_s, sum(map(prefill_speed, engines[ids])), begins_at)
        left_out.update(request.id for request in rest)
    return left_out


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
