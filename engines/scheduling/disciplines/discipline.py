"""What a discipline is told and asked. Pure: it holds no clock, and nothing that it decides is carried out by it."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from collections.abc import Sequence as Requests
from enum import StrEnum
from typing import NamedTuple, Protocol

from engines.engine_request import Sequence

Rank = Callable[[Sequence], tuple[float, ...]]  # smaller goes first


class Phase(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"

    @classmethod
    def of(cls, sequence: Sequence) -> "Phase":
        """What its next tokens are."""
        return cls.DECODE if sequence.is_decoding else cls.PREFILL


class Turn(NamedTuple):
    """``phase`` None: decodes and chunks of prompts in one iteration, by the rules of `engines.scheduling.scheduler`.

    ``members``: nobody else may take part.
    """

    service: str
    phase: Phase | None = None
    members: Collection[Sequence] | None = None


class Discipline(Protocol):
    def came(self, sequence: Sequence) -> None:
        """It can be computed here from now on: it waits for blocks, or holds them already."""

    def preempted(self, sequence: Sequence) -> None:
        """It lost its blocks, and prefills again."""

    def ended(self, sequence: Sequence) -> None:
        """It is not computed here any more, be it done, cancelled or gone. Its tokens are still there."""

    def ran(self, service: str, sequences: Requests[Sequence], elapsed_s: float) -> None:
        """These took part in steps that took so long."""

    def turns(self, now: float) -> Iterator[Turn]:
        """Whose turn it is, best first: a later one counts where the earlier have nothing to compute, or no memory."""

    def steady_until(self, turn: Turn, sequences: Requests[Sequence], now: float) -> float:
        """Until when the turn comes first, if nothing comes or goes and all that runs are steps of these requests, the
        first of which begins ``now``. Rather too early than too late, and infinitely early if it is not known.
        """

    def rank(self, now: float) -> Rank | None:
        """The order in which requests of a service enter its batch; None: that of `engines.scheduling.scheduler`."""

    def prompts(self, service: str, here: Iterable[Sequence], now: float) -> Generator[Sequence]:
        """A service's requests that do not decode, in that order; ``here``: they, in the order of the queue.

        Nothing may change before the last one is taken, or the generator is closed.
        """

    def check_invariants(self, here: Collection[Sequence]) -> None:
        """Raise AssertionError unless it knows of these and no others."""
