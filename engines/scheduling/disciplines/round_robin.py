"""Round robin: a service and phase a turn, requests of each first come, first served.

As MuxServe takes turns where services share a device in time alone (SeaLLM, section 2.2).
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from math import inf

from engines.engine_request import EngineRequest
from engines.scheduling.disciplines.discipline import GoesBefore, IterationPhase, Rank, Turn


class RoundRobinDiscipline:
    """Implements `Discipline`. ``services``: those that are here now."""

    def __init__(self, services: Collection[str]) -> None:
        self._services = services
        self._rotation: list[Turn] = []
        self._given: Turn | None = None

    def came(self, request: EngineRequest) -> None:
        """Ignore a newcomer: its turn comes all the same."""

    def changed(self, request: EngineRequest) -> None:
        """Ignore the change: phases have their turns all the same."""

    def ended(self, request: EngineRequest) -> None:
        """Do nothing: nothing was kept of the request."""

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
        """Count prompts of the service; those of others take turns with them."""
        return lambda request: inf if request.spec.service == service and not request.is_decoding else 0.0

    def check_invariants(self, here: Collection[EngineRequest]) -> None:
        """Check nothing: the discipline has no state."""


def _by_arrival(request: EngineRequest) -> tuple[float, ...]:
    return (-request.spec.priority, request.arrived_at)
