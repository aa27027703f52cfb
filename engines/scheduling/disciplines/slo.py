"""Serves by promises: services take turns, each with decodes and chunks of prompts in one iteration.

How many tokens of whose prompts join the decodes is up to the rules of `engines.scheduling.scheduler`: TTFT deadlines,
slack.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from math import inf

from engines.engine_request import EngineRequest
from engines.scheduling.disciplines.discipline import Turn


class InTurns:
    """Implements `Discipline`. ``services``: those that are here now."""

    def __init__(self, services: Collection[str]) -> None:
        self._services = services
        self._rotation: list[str] = []  # the service whose turn is next comes first

    def came(self, request: EngineRequest) -> None:
        """Ignore a newcomer: its service's turn comes all the same."""

    def changed(self, request: EngineRequest) -> None:
        """Ignore the change: a service's turn has both phases."""

    def ended(self, request: EngineRequest) -> None:
        """Do nothing: nothing was kept of the request."""

    def ran(self, service: str, requests: Sequence[EngineRequest], elapsed_s: float) -> None:
        if self._rotation[-1:] != [service]:
            self._rotation = [name for name in self._rotation if name != service] + [service]

    def turns(self, now: float) -> Iterator[Turn]:
        self._rotation = [name for name in self._rotation if name in self._services]
        self._rotation += [name for name in self._services if name not in self._rotation]
        return iter([Turn(service) for service in self._rotation])

    def steady_until(self, turn: Turn, requests: Sequence[EngineRequest], now: float) -> float:
        return -inf  # others' turns come

    def rank(self, now: float) -> None:
        return None

    def prompts(self, service: str, here: Iterable[EngineRequest], now: float) -> Generator[EngineRequest]:
        yield from here  # in the order of `engines.scheduling.scheduler`, which is not this one's

    def goes_before(self, service: str, now: float) -> None:
        return None

    def check_invariants(self, here: Collection[EngineRequest]) -> None:
        """Check nothing: the discipline has no state."""
