"""The frame of the disciplines that rank requests.

An iteration is of one service and one phase. Requests of both enter it by rank, while memory and the limits of an
iteration last. Whose iteration it is the request decides that ranks first of all that wait and all that decode. As
SeaLLM has it (algorithm 2, here `is_strict`) that request names the phase, too.

Otherwise requests of its service that wait join the batch first, if there is room for them. A batch of many decodes
takes little longer than one of few, so who waits until those before it are done leaves most of the device unused:
docs/results/seallm.md has the price. It is what vLLM does within a service.

Higher priority (`RequestSpec.priority`) ranks first, then what has waited too long, then the discipline's own order.
"""

import heapq
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from math import inf
from typing import Protocol

from engines.engine_request import EngineRequest
from engines.scheduling.disciplines.discipline import GoesBefore, IterationPhase, Rank, Turn
from engines.scheduling.disciplines.entrant import Entrant
from engines.scheduling.disciplines.lines import Lines
from engines.scheduling.disciplines.profile import Profiles
from engines.scheduling.disciplines.waits import Waits


class RankOrder(Protocol):
    """A discipline's own order. Within a service and a level it is that of the places, whatever profiles become."""

    def came(self, entrant: Entrant) -> None:
        """Give it a level and a place."""

    def ran(self, entrant: Entrant) -> None:
        """Note that a request ran. ``used_s`` has grown: give it a new level or place if that matters."""

    def newcomer(self, service: str, batch: int, now: float) -> tuple[float, ...]:
        """Return the `value` of a request of a service that comes now."""

    def steady_s(self, entrant: Entrant) -> float:
        """Return how long it can run before its level changes. Until then running takes it nowhere but forwards."""

    def value(self, entrant: Entrant, batch: int) -> tuple[float, ...]:
        """Rank it against all others, by the profiles as they are now; smaller is first. ``batch`` requests go
        with it.
        """


class Ranked:
    """Implements `Discipline`. Each event costs O(log n) comparisons for each request that it is about.

    ``batch``: how many requests an iteration computes at most.
    """

    def __init__(self, order: RankOrder, profiles: Profiles, waits: Waits, batch: int, *, is_strict: bool) -> None:
        self._order = order
        self._profiles = profiles
        self._waits = waits
        self._batch = 1 if is_strict else batch
        self._is_strict = is_strict
        self._lines = Lines()
        self._entrants: dict[EngineRequest, Entrant] = {}
        self._num_came = 0
        self._priorities: dict[str, int] = {}  # of the last request of each service

    def came(self, request: EngineRequest) -> None:
        self.ended(request)
        self._priorities[request.spec.service] = request.spec.priority
        entrant = self._entrants[request] = self._fresh(request)
        self._num_came += 1
        self._profiles.came(request)
        self._waits.came(entrant)
        self._lines.put(entrant)

    def changed(self, request: EngineRequest) -> None:
        entrant = self._entrants.get(request)
        if entrant is not None:
            self._lines.moved([entrant])

    def ended(self, request: EngineRequest) -> None:
        entrant = self._entrants.pop(request, None)
        if entrant is not None:
            entrant.is_here = False
            self._profiles.ended(request)
            self._waits.ended(entrant)
            self._lines.remove(entrant)

    def ran(self, service: str, requests: Sequence[EngineRequest], elapsed_s: float) -> None:
        entrants = [entrant for request in requests if (entrant := self._entrants.get(request)) is not None]
        for entrant in entrants:
            entrant.used_s += elapsed_s
            self._order.ran(entrant)
        self._lines.moved(entrants)

    def turns(self, now: float) -> Iterator[Turn]:
        """O(log n) comparisons for each service, phase and level."""
        heads = {*self._waits.starved(now), *self._lines.heads()}
        firsts = sorted(heads, key=lambda head: self._key(head, self._num_batched(head.service), now))
        turns = dict.fromkeys(Turn(first.service, IterationPhase.of(first.request)) for first in firsts)
        return iter(turns if self._is_strict else _prefills_first(turns))

    def steady_until(self, turn: Turn, requests: Sequence[EngineRequest], now: float) -> float:
        if self._waits.starved(now) or next(self.turns(now), None) != turn:
            return -inf
        entrants = [self._entrants[request] for request in requests if request in self._entrants]
        change_s = min([self._order.steady_s(entrant) for entrant in entrants], default=inf)
        return min(now + change_s, self._waits.next_starves_at(turn.service))

    def _num_batched(self, service: str) -> int:
        return min(self._batch, self._lines.num_of(service))

    def prompts(self, service: str, here: Iterable[EngineRequest], now: float) -> Generator[EngineRequest]:
        """O(log n) comparisons for each one that is taken, and for each starved decode before it."""
        with closing(self._waits.starved_of(service, now)) as starved:
            first = ((_starved_key(entrant), entrant) for entrant in starved if not entrant.request.is_decoding)
            lines = [((self._own_key(one, 1), one) for one in line) for line in self._lines.prompts(service)]
            given = set[Entrant]()
            for _, entrant in heapq.merge(first, *lines):
                if entrant not in given:
                    given.add(entrant)
                    yield entrant.request

    def rank(self, now: float) -> Rank:
        entrants = self._entrants
        return lambda request: self._key(entrants.get(request) or self._fresh(request), 1, now)

    def goes_before(self, service: str, now: float) -> GoesBefore:
        """Count those that rank before it, until their level changes, but for decodes of its service, which it joins
        unless phases are strict. So its service's turn comes with the first request of that.
        """
        order, entrants, is_strict = self._order, self._entrants, self._is_strict
        batches = {name: self._num_batched(name) for name in {request.spec.service for request in entrants}}
        newest = order.newcomer(service, min(self._batch, batches.get(service, 0) + 1), now)
        own = (-self._priorities.get(service, 0), 1, *newest, self._num_came + 1)
        heads = [] if is_strict else [head for head in self._lines.heads() if head.service == service]
        first = min([own, *(self._key(head, batches[service], now) for head in heads)])

        def seconds(request: EngineRequest) -> float:
            entrant, is_own = entrants.get(request), request.spec.service == service
            if entrant is None or (request.is_decoding and is_own and not is_strict):
                return 0.0
            is_before = self._key(entrant, batches[request.spec.service], now) < (own if is_own else first)
            return max(0.0, order.steady_s(entrant)) if is_before else 0.0

        return seconds

    def _key(self, entrant: Entrant, batch: int, now: float) -> tuple[float, ...]:
        return _starved_key(entrant) if self._waits.is_starved(entrant, now) else self._own_key(entrant, batch)

    def _own_key(self, entrant: Entrant, batch: int) -> tuple[float, ...]:
        return (-entrant.priority, 1, *self._order.value(entrant, batch), entrant.number)

    def _fresh(self, request: EngineRequest) -> Entrant:
        """As if it came now."""
        entrant = Entrant(request, self._num_came)
        self._order.came(entrant)
        return entrant

    def check_invariants(self, here: Collection[EngineRequest]) -> None:
        self._lines.check_invariants()
        assert len(self._lines) == len(self._entrants), "a request stands in no line"
        assert set(here) == set(self._entrants), (
            "a request that can be computed is unknown, or one that cannot is known"
        )


def _starved_key(entrant: Entrant) -> tuple[float, ...]:
    return (-entrant.priority, 0, entrant.waits_since, entrant.number)


def _prefills_first(turns: Iterable[Turn]) -> list[Turn]:
    """Services in their order."""
    given = set(turns)
    services = dict.fromkeys(turn.service for turn in turns)
    return [turn for service in services for phase in IterationPhase if (turn := Turn(service, phase)) in given]
