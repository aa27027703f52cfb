"""Defines what a discipline is told and asked. Pure: it holds no clock and carries out nothing that it decides."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from engines.engine_request import EngineRequest

Rank = Callable[[EngineRequest], tuple[float, ...]]  # smaller goes first
GoesBefore = Callable[[EngineRequest], float]  # for so many seconds at most; 0: not at all


class IterationPhase(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"

    @classmethod
    def of(cls, request: EngineRequest) -> "IterationPhase":
        """Return the phase of a request's next tokens."""
        return cls.DECODE if request.is_decoding else cls.PREFILL


class Turn(NamedTuple):
    """A turn of one service. ``phase`` None: decodes and chunks of prompts in one iteration, by the rules of
    `engines.scheduling.scheduler`.

    ``members``: nobody else may take part.
    """

    service: str
    phase: IterationPhase | None = None
    members: Collection[EngineRequest] | None = None


class Ranking(NamedTuple):
    """A discipline's order: of any requests, and ``prompts`` of the service in that order, each once.

    ``members``: as in `Turn`.
    """

    rank: Rank
    prompts: Iterator[EngineRequest]
    members: Collection[EngineRequest] | None = None


class Discipline(Protocol):
    def came(self, request: EngineRequest) -> None:
        """Take a request that can be computed from now on: it waits for blocks, or holds them already."""

    def changed(self, request: EngineRequest) -> None:
        """Note that a request lost its blocks, or is given some that it did not compute: its phase may be another."""

    def ended(self, request: EngineRequest) -> None:
        """Forget a request that is not computed here any more: done, cancelled or gone. Its tokens are still there."""

    def ran(self, service: str, requests: Sequence[EngineRequest], elapsed_s: float) -> None:
        """Note that these took part in steps that took so long."""

    def turns(self, now: float) -> Iterator[Turn]:
        """Return whose turn it is, best first: a later one counts where the earlier have nothing to compute, or no
        memory.
        """

    def steady_until(self, turn: Turn, requests: Sequence[EngineRequest], now: float) -> float:
        """Return until when the turn comes first, if nothing comes or goes and all that runs are steps of these
        requests, the first of which begins ``now``. Rather too early than too late, and infinitely early if it is not
        known.
        """

    def rank(self, now: float) -> Rank | None:
        """The order in which requests of a service enter its batch; None: that of `engines.scheduling.scheduler`."""

    def prompts(self, service: str, here: Iterable[EngineRequest], now: float) -> Generator[EngineRequest]:
        """A service's requests that do not decode, in that order; ``here``: they, in the order of the queue.

        Nothing may change before the last one is taken, or the generator is closed.
        """

    def goes_before(self, service: str, now: float) -> GoesBefore | None:
        """Return for how long each of those that are here is computed before the prompt of a request of the service
        that comes now; None: that is up to promises.
        """

    def check_invariants(self, here: Collection[EngineRequest]) -> None:
        """Raise AssertionError unless it knows of these and no others."""
