"""What each service was asked for: recorded requests, or their rate and the moments of their lengths."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from random import Random
from statistics import fmean, pstdev
from typing import NamedTuple


class Arrival(NamedTuple):
    """A request. ``at_s`` counts from the start of its traffic."""

    at_s: float
    num_input: int
    num_output: int


class Moments(NamedTuple):
    """Of a length in tokens."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Moments":
        return cls(fmean(values), pstdev(values)) if values else cls(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ServiceTraffic:
    """``rate`` in requests a second. ``requests`` are those recorded, in order; empty: they are drawn."""

    rate: float
    num_input: Moments
    num_output: Moments
    requests: tuple[Arrival, ...] = ()

    @classmethod
    def recorded(cls, requests: Sequence[Arrival], span_s: float) -> "ServiceTraffic":
        inputs = Moments.of([request.num_input for request in requests])
        outputs = Moments.of([request.num_output for request in requests])
        return cls(len(requests) / span_s, inputs, outputs, tuple(sorted(requests)))

    def arrivals(self, span_s: float, random: Random) -> tuple[Arrival, ...]:
        """What is recorded, else Poisson arrivals with lognormal lengths of these moments."""
        return self.requests or tuple(self._drawn(span_s, random))

    def _drawn(self, span_s: float, random: Random) -> "list[Arrival]":
        drawn: list[Arrival] = []
        at_s = random.expovariate(self.rate) if self.rate > 0 else span_s
        while at_s < span_s:
            drawn.append(Arrival(at_s, _length(self.num_input, random), _length(self.num_output, random)))
            at_s += random.expovariate(self.rate)
        return drawn


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of all services, over ``span_s``."""

    span_s: float
    services: Mapping[str, ServiceTraffic]

    @classmethod
    def recorded(cls, requests: Mapping[str, Sequence[Arrival]], span_s: float) -> "Traffic":
        return cls(span_s, {name: ServiceTraffic.recorded(those, span_s) for name, those in requests.items()})

    def rate(self, service: str) -> float:
        """0 for a service that nobody asked for."""
        found = self.services.get(service)
        return found.rate if found is not None else 0.0

    def only(self, names: Collection[str]) -> "Traffic":
        """Of these services."""
        return Traffic(self.span_s, {name: service for name, service in self.services.items() if name in names})

    def drawn_anew(self, seed: int) -> "Traffic":
        """Another sample of the same moments: what is better on both samples is not so by chance alone."""
        drawn = {name: service._drawn(self.span_s, Random(f"{seed}/{name}")) for name, service in self.services.items()}
        return Traffic.recorded(drawn, self.span_s)


def _length(moments: Moments, random: Random) -> int:
    """Lognormal: lengths are positive and skewed."""
    mean, deviation = moments
    if mean <= 0:
        return 1
    variance = log(1 + (deviation / mean) ** 2)
    return max(1, round(random.lognormvariate(log(mean) - variance / 2, sqrt(variance))))
