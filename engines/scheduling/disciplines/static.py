"""Static batches: requests that begin together, and nobody joins before the last of them has left (SCLS, section 2.4).

A batch is what a gateway sent as one (`SubmitBatch`), or the requests that came one by one, first come, first served,
as many as the engine runs at a time. Its prompts are computed first, then all of it decodes.

With ``pads``, batches are as transformers' generate computes them: every prompt as long as the longest, a row for each
request until the batch is over, and answers when it is. Rows whose answer is complete generate tokens that nobody
wants. No row can be taken out of such a batch, so it has as many as memory holds with the longest input and the longest
answer that one of them may get here.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from itertools import count
from math import inf

from engines.engine_request import EngineRequest
from engines.scheduling.batch import Rows
from engines.scheduling.disciplines.discipline import GoesBefore, IterationPhase, Rank, Turn


class StaticBatches:
    """Implements `Discipline`. ``size``: of a batch of requests that came one by one.

    ``most_rows``, with ``pads``: how many rows of so many tokens the memory of a service holds.
    """

    def __init__(self, size: int, most_rows: Callable[[str, int], int], *, pads: bool) -> None:
        self.pads = pads
        self._size = size
        self._most_rows = most_rows
        self._numbers = count()
        self._places: dict[EngineRequest, int] = {}  # of all that are here, in the order in which they came
        self._members: dict[EngineRequest, None] = {}  # of the batch that runs; those with ``pads`` that draw still
        self._complete: list[EngineRequest] = []  # with ``pads``: rows of it that nobody wants
        self._longest = 0  # tokens of its longest input
        self._most = 0  # tokens that one of it may generate here

    def came(self, request: EngineRequest) -> None:
        request.uses_prefixes = request.uses_prefixes and not self.pads
        self._places[request] = next(self._numbers)

    def changed(self, request: EngineRequest) -> None:
        """Keep the request as a member: what it lost is computed again when there is room."""

    def ended(self, request: EngineRequest) -> None:
        self._places.pop(request, None)
        self._members.pop(request, None)
        if request in self._complete:
            self._complete.remove(request)

    def ran(self, service: str, requests: Sequence[EngineRequest], elapsed_s: float) -> None:
        """Ignore the step: nobody's turn depends on it."""

    def turns(self, now: float) -> Iterator[Turn]:
        if not self._members and not self._complete:
            self._begin()
        if not self._members:
            return
        service = next(iter(self._members)).spec.service
        if not all(request.is_decoding for request in self._members):
            yield Turn(service, IterationPhase.PREFILL, self._members)
        yield Turn(service, IterationPhase.DECODE, self._members)

    def _begin(self) -> None:
        first = next(iter(self._places), None)
        if first is None:
            return
        if first.batch:
            whose = first.spec.gateway, first.batch
            members = [each for each in self._places if (each.spec.gateway, each.batch) == whose]
        else:
            alike = [each for each in self._places if not each.batch and each.spec.service == first.spec.service]
            members = alike[: self._size]
        if self.pads:
            members = self._fitting(members)
        self._members = dict.fromkeys(members)
        self._longest = max(len(each.tokens) for each in members)
        self._most = max(each.num_left_here for each in members)

    def _fitting(self, members: list[EngineRequest]) -> list[EngineRequest]:
        """The first of them, the very first in any case."""
        service, longest, most = members[0].spec.service, 0, 0
        for num_rows, each in enumerate(members, start=1):
            longest, most = max(longest, len(each.tokens)), max(most, each.num_left_here)
            if num_rows > max(1, self._most_rows(service, longest + most)):
                return members[: num_rows - 1]
        return members

    def steady_until(self, turn: Turn, requests: Sequence[EngineRequest], now: float) -> float:
        return inf

    def prompts(self, service: str, here: Iterable[EngineRequest], now: float) -> Generator[EngineRequest]:
        yield from [request for request in self._members if not request.is_decoding]

    def rank(self, now: float) -> Rank:
        places = self._places
        return lambda request: (places.get(request, 0),)

    def goes_before(self, service: str, now: float) -> GoesBefore:
        """Count all: nobody joins a batch, and the next one begins with those that came first."""
        return lambda request: inf

    # --- with ``pads`` ------------------------------------------------------------------------------------------------

    def rows(self, requests: Sequence[EngineRequest]) -> Rows | None:
        """Return what an iteration of these members computes."""
        if not self.pads:
            return None
        if not requests[0].is_decoding:
            longest = max(requests, key=lambda each: each.num_uncomputed)
            return Rows(len(requests), longest.num_uncomputed, longest.num_computed, self._most)
        num_rows = len(self._members) + len(self._complete)
        sampled = max(len(each.tokens) - each.spec.num_tokens for each in requests)
        return Rows(num_rows, 1, self._longest + sampled - 1, self._most - sampled)

    def complete(self, request: EngineRequest) -> None:
        """Note that its answer is complete, or its slice used up: its row stays until all are."""
        del self._members[request]
        self._complete.append(request)

    def take_over(self) -> list[EngineRequest]:
        """The rows of the batch, if it is over. Members that found no memory are the first ones of the next."""
        if any(request.blocks for request in self._members):
            return []
        self._members = {}
        return list(self._complete)

    def check_invariants(self, here: Collection[EngineRequest]) -> None:
        assert set(here) == set(self._places), "a request that can be computed is unknown, or one that cannot is known"
        assert set(self._members) | set(self._complete) <= set(self._places), "one that is gone is in the batch"
