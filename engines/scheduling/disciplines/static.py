"""Static batches: requests that begin together, and nobody joins before the last of them has left (SCLS, section 2.4).

A batch is what a gateway sent as one (`SubmitBatch`), or the requests that came one by one, first come, first served,
as many as the engine runs at a time. Its prompts are computed first, then all of it decodes.

With ``pads``, batches are as transformers' generate computes them: every prompt as long as the longest, a row for each
request until the batch is over, and answers when it is. Rows whose answer is complete draw tokens that nobody wants.
No row can be taken out of such a batch, so it has as many as memory holds with the longest input and the longest answer
that one of them may get here.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from collections.abc import Sequence as Requests
from itertools import count
from math import inf

from engines.engine_request import Sequence
from engines.scheduling.batch import Rows
from engines.scheduling.disciplines.discipline import Phase, Rank, Turn


class StaticBatches:
    """Implements `Discipline`. ``size``: of a batch of requests that came one by one.

    ``most_rows``, with ``pads``: how many rows of so many tokens the memory of a service holds.
    """

    def __init__(self, size: int, most_rows: Callable[[str, int], int], *, pads: bool) -> None:
        self.pads = pads
        self._size = size
        self._most_rows = most_rows
        self._numbers = count()
        self._places: dict[Sequence, int] = {}  # of all that are here, in the order in which they came
        self._members: dict[Sequence, None] = {}  # of the batch that runs; those with ``pads`` that draw still
        self._complete: list[Sequence] = []  # with ``pads``: rows of it that nobody wants
        self._longest = 0  # tokens of its longest input
        self._most = 0  # tokens that one of it may draw here

    def came(self, sequence: Sequence) -> None:
        sequence.uses_prefixes = not self.pads
        self._places[sequence] = next(self._numbers)

    def preempted(self, sequence: Sequence) -> None:
        """It stays a member, and is computed again when there is room."""

    def ended(self, sequence: Sequence) -> None:
        self._places.pop(sequence, None)
        self._members.pop(sequence, None)
        if sequence in self._complete:
            self._complete.remove(sequence)

    def ran(self, service: str, sequences: Requests[Sequence], elapsed_s: float) -> None:
        """Nobody's turn depends on it."""

    def turns(self, now: float) -> Iterator[Turn]:
        if not self._members and not self._complete:
            self._begin()
        if not self._members:
            return
        service = next(iter(self._members)).spec.service
        if not all(sequence.is_decoding for sequence in self._members):
            yield Turn(service, Phase.PREFILL, self._members)
        yield Turn(service, Phase.DECODE, self._members)

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

    def _fitting(self, members: list[Sequence]) -> list[Sequence]:
        """The first of them, the very first in any case."""
        service, longest, most = members[0].spec.service, 0, 0
        for num_rows, each in enumerate(members, start=1):
            longest, most = max(longest, len(each.tokens)), max(most, each.num_left_here)
            if num_rows > max(1, self._most_rows(service, longest + most)):
                return members[: num_rows - 1]
        return members

    def steady_until(self, turn: Turn, sequences: Requests[Sequence], now: float) -> float:
        return inf

    def prompts(self, service: str, here: Iterable[Sequence], now: float) -> Generator[Sequence]:
        yield from [sequence for sequence in self._members if not sequence.is_decoding]

    def rank(self, now: float) -> Rank:
        places = self._places
        return lambda sequence: (places.get(sequence, 0),)

    # --- with ``pads`` ------------------------------------------------------------------------------------------------

    def rows(self, sequences: Requests[Sequence]) -> Rows | None:
        """What an iteration of these members computes."""
        if not self.pads:
            return None
        if not sequences[0].is_decoding:
            longest = max(sequences, key=lambda each: each.num_uncomputed)
            return Rows(len(sequences), longest.num_uncomputed, longest.num_computed, self._most)
        num_rows = len(self._members) + len(self._complete)
        drawn = max(len(each.tokens) - each.spec.num_tokens for each in sequences)
        return Rows(num_rows, 1, self._longest + drawn - 1, self._most - drawn)

    def complete(self, sequence: Sequence) -> None:
        """Its answer is, or its slice is used up: its row stays until all are."""
        del self._members[sequence]
        self._complete.append(sequence)

    def take_over(self) -> list[Sequence]:
        """The rows of the batch, if it is over. Members that found no memory are the first ones of the next."""
        if any(sequence.blocks for sequence in self._members):
            return []
        self._members = {}
        return list(self._complete)

    def check_invariants(self, here: Collection[Sequence]) -> None:
        assert set(here) == set(self._places), "a request that can be computed is unknown, or one that cannot is known"
        assert set(self._members) | set(self._complete) <= set(self._places), "one that is gone is in the batch"
