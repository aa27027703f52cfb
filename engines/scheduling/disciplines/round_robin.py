"""Round robin: a service and phase a turn, requests of each first come, first served.

As MuxServe takes turns where services share a device in time alone (SeaLLM, section 2.2).
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from heapq import nsmallest
from math import inf

from engines.engine_request import EngineRequest
from engines.scheduling.disciplines.discipline import GoesBefore, IterationPhase, Rank, Turn


class RoundRobinDiscipline:
    """Implements `Discipline`. ``services``: those that are here now."""

    def __init__(self, services: Collection[str]) -> None:
        self._services = services
        self._rotation: list[Turn] = []
        self._given: Turn | None = None
        self._here: dict[EngineRequest, None] = {}

    def came(self, request: EngineRequest) -> None:
        self._here[request] = None

    def changed(self, request: EngineRequest) -> None:
        """Ignore the change: phases have their turns all the same."""

    def ended(self, request: EngineRequest) -> None:
        self._here.pop(request, None)

    def ran(self, service: str, requests: Sequence[EngineRequest], elapsed_s: float) -> None:
        if self._given is not None and self._given.service == service:
            self._rotation = [turn for turn in self._rotation if turn != self._given] + [self._given]

    def turns(self, now: float) -> Iterator[Turn]:
        turns = [Turn(service, phase) for service in self._services for phase in IterationPhase]
        self._rotation = [turn for turn in self._rotation if turn in turns]
        self._rotation += [turn for turn in turns if turn not in self._rotation]
        for turn in list(self._rotation):
            self._given = turn
            yield turn

    def steady_until(self, turn: Turn, requests: Sequence[EngineRequest], now: float) -> float:
        return -inf  # others' turns come

    def rank(self, now: float) -> Rank:
        return _by_arrival

    def prompts(self, service: str, here: Iterable[EngineRequest], now: float) -> Generator[EngineRequest]:
        yield from sorted(here, key=_by_arrival)

    def goes_before(self, service: str, now: float) -> GoesBefore:
        """Count prompts of the service, and as many of each other one, and one more, as these have as many turns."""
        prompts = [request for request in self._here if not request.is_decoding]
        num_turns = sum([request.spec.service == service for request in prompts]) + 1
        ahead = set[EngineRequest]()
        for other in self._services:
            those = [request for request in prompts if request.spec.service == other != service]
            ahead.update(nsmallest(num_turns, those, key=_by_arrival))

        def seconds(request: EngineRequest) -> float:
            is_own = request.spec.service == service and not request.is_decoding
            return inf if is_own or request in ahead else 0.0

        return seconds

    def check_invariants(self, here: Collection[EngineRequest]) -> None:
        assert set(here) == set(self._here), "a request that can be computed is unknown, or one that cannot is known"


def _by_arrival(request: EngineRequest) -> tuple[float, ...]:
    return (-request.spec.priority, request.arrived_at)
