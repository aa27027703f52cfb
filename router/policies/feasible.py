"""Which waiting requests to serve when not all can make it."""

import heapq
from collections.abc import Callable, Iterable

from router.view import RequestView


def split_feasible(
    waiting: Iterable[RequestView], work_s: Callable[[RequestView], float], speed: float, starts_at: float
) -> tuple[list[RequestView], list[RequestView]]:
    """Those that can all meet their deadlines one after the other, as many as possible, and those left over.

    Moore and Hodgson (1968), optimal for one machine: take requests by deadline; whenever one would be late, leave out
    the longest taken so far. ``speed``: seconds of work done each second, by all engines that prefill; they are free
    from ``starts_at`` on. Of different priorities, the lower one is left out first. Both lists keep the given order.
    """
    requests = list(waiting)
    taken: list[tuple[int, float, int]] = []  # least important and longest first
    left_out: set[int] = set()
    ends_at = starts_at
    for index in sorted(range(len(requests)), key=lambda index: requests[index].deadline):
        request = requests[index]
        seconds = work_s(request) / speed
        heapq.heappush(taken, (request.priority, -seconds, index))
        ends_at += seconds
        if ends_at > request.deadline:
            _, negative_s, longest = heapq.heappop(taken)
            ends_at += negative_s
            left_out.add(longest)
    kept = [request for index, request in enumerate(requests) if index not in left_out]
    return kept, [requests[index] for index in sorted(left_out)]
