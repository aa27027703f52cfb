"""Draws which service each request asks for, when a load is shared by several."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from simulation.loads.trace_request import TraceRequest


@dataclass(frozen=True, slots=True)
class Mix:
    """Services by name, and the share of the requests that asks for each, by weight."""

    services: tuple[str, ...]
    weights: tuple[float, ...]

    @classmethod
    def even(cls, services: Sequence[str]) -> "Mix":
        return cls(tuple(services), (1.0,) * len(services))

    def assign(self, requests: Iterable[TraceRequest], random: Random) -> Iterator[TraceRequest]:
        """Each request with a service drawn by the weights."""
        bounds = list(accumulate(self.weights))
        for request in requests:
            [service] = random.choices(self.services, cum_weights=bounds)
            yield request.asking(service)


def parse_mix(text: str) -> Mix:
    """Parse the shares of services: ``chat=0.7,code=0.3``. Raise `ValueError`, saying what would be right."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = (word.strip() for word in part.partition("="))
        try:
            shares[name] = float(weight) if name and name not in shares else 0.0
        except ValueError:
            shares[name] = 0.0
    if not all(0 < weight < float("inf") for weight in shares.values()):
        raise ValueError(f"{text!r} does not fit; write it like chat=0.7,code=0.3")
    return Mix(tuple(shares), tuple(shares.values()))
