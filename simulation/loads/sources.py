"""Loads of simulations: a trace, lengths that arrive at random, or clients that wait for their answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from random import Random
from typing import Protocol

from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.closed_loop import ClosedLoop, asked_requests
from simulation.loads.described.description import LoadDescription
from simulation.loads.described.making import described_requests
from simulation.loads.mix import Mix
from simulation.loads.play import ClosedPlay, LoadPlay, OpenPlay, most_turns
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import at_rate


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """How much of a load comes: ``rate`` requests a second, or ``num_clients`` at a time; both None: what it says."""

    rate: float | None = None
    num_clients: int | None = None

    @property
    def name(self) -> str:
        """What files call it; empty if it is what the load says."""
        if self.num_clients is not None:
            return f"{self.num_clients}-clients"
        return "" if self.rate is None else f"{self.rate:g}"


AS_IT_SAYS = LoadLevel()


class LoadSource(Protocol):
    """Makes the same requests for the same seed. ``is_stationary``: late ones are like early ones. ``has_turns``: its
    rates are of conversations.
    """

    @property
    def pool(self) -> Sequence[TraceRequest]:
        """The requests that its own are made of."""

    @property
    def is_stationary(self) -> bool: ...

    @property
    def has_turns(self) -> bool: ...

    def num_clients_at(self, level: LoadLevel) -> int | None:
        """Return how many clients wait for answers; None: requests come whatever becomes of others."""

    def play(self, level: LoadLevel, seed: int, mix: Mix | None) -> LoadPlay:
        """Make its requests, for services drawn from the ``mix``; None: for those that they name."""

    def share_done(self, at_s: float, num_ended: int) -> float:
        """How much of it is over, between 0 and 1, when so many have ended and the last one had arrived at ``at_s``."""


@dataclass(frozen=True, slots=True)
class TraceLoad:
    """A trace's own arrivals, at its own rate unless another one is asked for. ``num_requests``: later turns, too."""

    trace: Sequence[TraceRequest]
    num_requests: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_requests", sum(1 + len(request.then) for request in self.trace))

    @property
    def pool(self) -> Sequence[TraceRequest]:
        return self.trace

    @property
    def is_stationary(self) -> bool:
        return False

    @property
    def has_turns(self) -> bool:
        return False

    def num_clients_at(self, level: LoadLevel) -> int | None:
        return None

    def play(self, level: LoadLevel, seed: int, mix: Mix | None) -> LoadPlay:
        requests = self.trace if level.rate is None else at_rate(self.trace, level.rate)
        return _open(requests, seed, mix, most_turns(self.trace))

    def share_done(self, at_s: float, num_ended: int) -> float:
        return num_ended / self.num_requests


@dataclass(frozen=True, slots=True)
class SyntheticLoad:
    """Lengths drawn from a pool, arriving as ``arrivals`` says for ``span_s``, unless at another rate."""

    lengths: Sequence[TraceRequest]
    arrivals: Arrivals
    span_s: float
    limit: int | None = None

    @property
    def pool(self) -> Sequence[TraceRequest]:
        return self.lengths

    @property
    def is_stationary(self) -> bool:
        return True

    @property
    def has_turns(self) -> bool:
        return False

    def num_clients_at(self, level: LoadLevel) -> int | None:
        return None

    def with_requests(self, number: int) -> "SyntheticLoad":
        """Return the same for so many requests, however long they take to come."""
        return replace(self, span_s=inf, limit=number)

    def play(self, level: LoadLevel, seed: int, mix: Mix | None) -> LoadPlay:
        arrivals = self.arrivals if level.rate is None else replace(self.arrivals, rate=level.rate)
        requests = synthesize(self.lengths, arrivals, self.span_s, Random(f"{seed}/trace"))
        return _open(islice(requests, self.limit), seed, mix)

    def share_done(self, at_s: float, num_ended: int) -> float:
        return min(1.0, max(at_s / self.span_s, num_ended / self.limit if self.limit else 0.0))


@dataclass(frozen=True, slots=True)
class ClosedLoad:
    """Lengths drawn from a pool for ``num_clients``, each of which waits for its answer and thinks, for ``think_s`` on
    average, before it asks again: ``num_requests`` in all, or until ``duration_s``.

    The load generator draws the same from the same pool.
    """

    lengths: Sequence[TraceRequest]
    num_clients: int
    think_s: float
    num_requests: int
    duration_s: float | None = None

    @property
    def pool(self) -> Sequence[TraceRequest]:
        return self.lengths

    @property
    def is_stationary(self) -> bool:
        return True

    @property
    def has_turns(self) -> bool:
        return False

    def num_clients_at(self, level: LoadLevel) -> int:
        return level.num_clients or self.num_clients

    def play(self, level: LoadLevel, seed: int, mix: Mix | None) -> LoadPlay:
        def draw(random: Random) -> list[TraceRequest]:
            return random.choices(self.lengths, k=self.num_requests)

        requests = asked_requests(draw, self.think_s, mix, seed)
        loop = ClosedLoop(requests, self.num_clients_at(level), self.duration_s, most_turns(self.lengths))
        return ClosedPlay(loop)

    def share_done(self, at_s: float, num_ended: int) -> float:
        return min(1.0, num_ended / self.num_requests if self.duration_s is None else at_s / self.duration_s)


@dataclass(frozen=True, slots=True)
class DescribedLoad:
    """A load that a file describes. Requests ask for ``service`` unless there is a mix."""

    description: LoadDescription
    service: str
    seed: int

    @property
    def pool(self) -> Sequence[TraceRequest]:
        return described_requests(self.description, self.seed, Mix.even([self.service]))

    @property
    def is_stationary(self) -> bool:
        return self.description.is_stationary

    @property
    def has_turns(self) -> bool:
        return self.description.table.conversations is not None

    def num_clients_at(self, level: LoadLevel) -> int | None:
        clients = self.description.table.clients
        return None if clients is None else level.num_clients or clients.count

    def with_requests(self, number: int) -> "DescribedLoad":
        """Return the same for so many requests. Only an open loop without phases can be of any length."""
        return replace(self, description=self.description.with_requests(number))

    def at_level(self, level: LoadLevel) -> LoadDescription:
        """Return what is played. Raise `UserError` if it is not described so that there may be as much of it."""
        if level.num_clients is not None:
            return self.description.with_clients(level.num_clients)
        return self.description if level.rate is None else self.description.at_rate(level.rate)

    def play(self, level: LoadLevel, seed: int, mix: Mix | None) -> LoadPlay:
        description = self.at_level(level)
        table = description.table
        requests = described_requests(description, seed, mix or Mix.even([self.service]))
        if table.clients is not None:
            loop = ClosedLoop(requests, table.clients.count, table.duration_s, most_turns(requests))
            return ClosedPlay(loop)
        return OpenPlay(requests, most_turns(requests))

    def share_done(self, at_s: float, num_ended: int) -> float:
        table = self.description.table
        span_s = table.duration_s or sum(phase.for_s for phase in table.phases)
        turns = 1.0 if table.conversations is None else table.conversations.turns
        return min(1.0, at_s / span_s if span_s else num_ended / ((table.requests or 1) * turns))


def _open(requests: Iterable[TraceRequest], seed: int, mix: Mix | None, turns: int = 1) -> LoadPlay:
    return OpenPlay(requests if mix is None else mix.assign(requests, Random(f"{seed}/services")), turns)
