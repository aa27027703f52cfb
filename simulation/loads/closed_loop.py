"""Closed loops: so many clients, each of which thinks, asks, and waits for its answer before it thinks again."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from simulation.loads.mix import Mix
from simulation.loads.trace_request import TraceRequest

POOL = 10_000  # requests of a loop that ends by time; then they come again


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """``requests`` are taken in their order by the next client that is free, each after its ``think_s``.

    ``duration_s``: nobody asks after that; requests come again from the first one until then. None: the loop ends with
    its requests, which are read once, as they are asked. ``most_turns``: of a conversation among them.
    """

    requests: Iterable[TraceRequest]
    num_clients: int
    duration_s: float | None = None
    most_turns: int = 1


def asked_requests(
    draw: Callable[[Random], Sequence[TraceRequest]], think_s: float, mix: Mix | None, seed: int
) -> Iterator[TraceRequest]:
    """Yield the requests that ``draw`` draws, for services of the ``mix`` if there is one. Clients think for
    ``think_s`` on average before each one, exponentially distributed.
    """
    random, thinking = Random(f"{seed}/shapes"), Random(f"{seed}/think")
    requests: Iterable[TraceRequest] = draw(random)
    if think_s:
        requests = (replace(request, think_s=thinking.expovariate(1 / think_s)) for request in requests)
    return iter(requests if mix is None else mix.assign(requests, random))
