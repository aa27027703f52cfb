"""Goes through the engines that may prefill a request in the order in which they would be done with it at full speed.

Few are looked at closely. What is ahead of the request on an engine is worked out in that engine's turn only.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from router.policies.parts.outlook import own_work_s, work_ahead_s
from router.view.cluster_view import Candidates
from router.view.engine_view import PACE_TOKENS, EngineView, RequestView


def soonest_first(
    request: RequestView, engines: Sequence[EngineView], own_s: Sequence[float], now: float
) -> Iterator[tuple[float, int]]:
    """Yield seconds of work, of what comes first and its own, with the number of the engine; the least first.

    ``own_s``: of its own work on each engine.
    """
    order, place = _by_work(own_s), (-request.priority, request.deadline)
    num_tried, num_engines = 0, len(engines)
    heap: list[tuple[float, int]] = []  # of those tried that prefill already: seconds with what is ahead; number
    while heap or num_tried < num_engines:
        number = order[num_tried] if num_tried < num_engines else 0
        if heap and (num_tried == num_engines or heap[0] < (own_s[number], number)):
            yield heappop(heap)
            continue
        num_tried += 1
        engine = engines[number]
        line_s = engine.line_s(request.service, now)
        if line_s is not None:
            heappush(heap, (own_s[number] + line_s, number))
        elif engine.prefills:
            heappush(heap, (own_s[number] + work_ahead_s(engine, place, now), number))
        else:
            yield own_s[number], number


def own_works_s(request: RequestView, found: Candidates, first_s: float) -> list[float]:
    """Return the work of its prefill on each prefill engine, at full speed: by their paces where nothing is cached.

    ``first_s``: on the first prefill engine, if nothing is cached there. A pace is a line from one token to many: that
    of the first engine tells how far its cost is from a line, and the others' are taken to be as far.
    """
    paces = found.paces
    first = paces[0]
    if paces.count(first) == len(paces):
        work_s = [first_s] * len(paces)
    else:
        share = (request.num_tokens - 1) / (PACE_TOKENS - 1)
        line_s = first.one_s + share * (first.many_s - first.one_s)
        relative = first_s / line_s if line_s else 0.0
        work_s = [first_s if pace == first else relative * (pace[0] + share * (pace[1] - pace[0])) for pace in paces]
    if request.cached:
        for number, engine in enumerate(found.prefill_engines):
            if engine.id in request.cached:
                work_s[number] = own_work_s(engine, request)
    return work_s


def could_have_made_it(request: RequestView, found: Candidates, first_s: float) -> bool:
    """Return whether an idle engine could keep its TTFT promise. ``first_s``: its prefill on the first prefill engine.

    A promise that none could keep is not for the load to break: it is served as late ones are.
    """
    promise_s = request.deadline - request.arrived_at
    if first_s <= promise_s:
        return True
    return any(e.prefill_s(request.service, request.num_tokens) <= promise_s for e in found.prefill_engines)


def _by_work(own_s: Sequence[float]) -> Sequence[int]:
    """Numbers of engines, the one with the least work first."""
    return range(len(own_s)) if _are_all(own_s[0], own_s) else sorted(range(len(own_s)), key=own_s.__getitem__)


def _are_all(value: float, values: Sequence[float]) -> bool:
    return values.count(value) == len(values)
