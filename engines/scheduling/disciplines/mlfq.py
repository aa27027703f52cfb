"""Skip-join multi-level feedback queue (FastServe, section 4.1).

Queues have quanta that double from one to the next, the first one's is the quickest decode step there is. A request
joins the first queue whose quantum its prompt fits into, and skips those above. When it has used up a quantum it goes
to the end of the next queue. Higher queues go first, each in order. What waits too long goes before all
(`engines.scheduling.disciplines.waits`), as FastServe promotes it.
"""

from collections.abc import Callable
from math import inf

from engines.engine_request import EngineRequest
from engines.scheduling.disciplines.entrant import Entrant

MOST_LEVELS = 40


class SkipJoin:
    """Chooses the queue that a request joins. ``prefill_s``: what is left of a prompt, alone. ``quickest_step_s``: the
    first quantum, as it is now.
    """

    def __init__(self, prefill_s: Callable[[EngineRequest], float], quickest_step_s: Callable[[], float]) -> None:
        self._prefill_s = prefill_s
        self._quickest_step_s = quickest_step_s
        self._quantum_s = 0.0
        self._num_joined = 0
        self._joined: dict[str, int] = {}  # which queue the last one of a service

    def came(self, entrant: Entrant) -> None:
        self._quantum_s = self._quickest_step_s()
        first_s = 0.0 if entrant.request.is_decoding else self._prefill_s(entrant.request)
        while entrant.level < MOST_LEVELS and self._quantum_s * (1 << entrant.level) < first_s:
            entrant.level += 1
        entrant.first_level = self._joined[entrant.service] = entrant.level
        self._join(entrant)

    def ran(self, entrant: Entrant) -> None:
        level = entrant.level
        while entrant.level < MOST_LEVELS and entrant.used_s >= self._granted_s(entrant):
            entrant.level += 1
        if entrant.level > level:
            self._join(entrant)

    def steady_s(self, entrant: Entrant) -> float:
        return inf if entrant.level == MOST_LEVELS else self._granted_s(entrant) - entrant.used_s

    def newcomer(self, service: str, batch: int, now: float) -> tuple[float, ...]:
        """It joins the queue that the last one of its service joined."""
        return (self._joined.get(service, 0), self._num_joined + 1)

    def value(self, entrant: Entrant, batch: int) -> tuple[float, ...]:
        return (entrant.level, entrant.place)

    def _granted_s(self, entrant: Entrant) -> float:
        """The quanta of its queues so far: what a step uses beyond one is paid by the next."""
        return self._quantum_s * ((2 << entrant.level) - (1 << entrant.first_level))

    def _join(self, entrant: Entrant) -> None:
        self._num_joined += 1
        entrant.place = self._num_joined
