"""Describes each service's traffic: recorded requests, or their rate and the moments of their lengths."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """Mean and deviation of a length in tokens."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Moments":
        return cls(fmean(values), pstdev(values)) if values else cls(0.0, 0.0)

    def as_likely(self, number: float, random: Random) -> "Moments":
        """Draw moments that lengths of so many requests can as well have: another mean, and as much relative
        deviation.
        """
        if self.mean <= 0:
            return self
        error = self.deviation / self.mean / sqrt(number)
        factor = random.lognormvariate(-(error**2) / 2, error)
        return Moments(self.mean * factor, self.deviation * factor)


@dataclass(frozen=True, slots=True)
class ServiceTraffic:
    """Traffic of one service. ``rate`` in requests a second. ``requests`` are those recorded, in order; empty: they are
    drawn. ``num_waiting`` others were there before the first of them, and have not begun. ``dispersion``: the variance
    of the number of requests in some seconds over its mean, 1 for Poisson arrivals.
    """

    rate: float
    num_input: Moments
    num_output: Moments
    requests: tuple[Arrival, ...] = ()
    num_waiting: int = 0
    dispersion: float = 1.0

    @classmethod
    def recorded(cls, requests: Sequence[Arrival], span_s: float) -> "ServiceTraffic":
        inputs = Moments.of([request.num_input for request in requests])
        outputs = Moments.of([request.num_output for request in requests])
        return cls(len(requests) / span_s, inputs, outputs, tuple(sorted(requests)))

    def arrivals(self, span_s: float, random: Random) -> tuple[Arrival, ...]:
        """Return what is recorded, else gamma gaps with this dispersion, and lognormal lengths with these moments."""
        return self.requests or tuple(self._drawn(span_s, random))

    def as_likely(self, span_s: float, random: Random) -> "ServiceTraffic":
        """Moments of which what was seen in ``span_s`` can as well be a sample; nothing is known of services that were
        asked for nothing. Requests that come in bursts tell as much of their rate as fewer that do not.
        """
        number = self.rate * span_s
        if number <= 0:
            return self
        num_input, num_output = (moments.as_likely(number, random) for moments in (self.num_input, self.num_output))
        rate = random.gammavariate(number / self.dispersion, self.dispersion / span_s)
        return replace(self, rate=rate, num_input=num_input, num_output=num_output)

    def waiting(self, random: Random) -> list[Arrival]:
        """Return the requests that were there before, drawn with lengths like the others'."""
        lengths = self.num_input, self.num_output
        return [Arrival(0.0, *(_length(one, random) for one in lengths)) for _ in range(self.num_waiting)]

    def _drawn(self, span_s: float, random: Random) -> "list[Arrival]":
        """A renewal process whose gaps have ``dispersion`` as the square of their coefficient of variation.

        It begins at any moment, and the longer a gap the likelier that lies in it. Poisson's first one is like others.
        """
        drawn: list[Arrival] = []
        if self.rate <= 0:
            return drawn
        shape, scale_s = 1 / self.dispersion, self.dispersion / self.rate
        at_s = (
            random.gammavariate(shape, scale_s)
            if shape == 1
            else random.random() * random.gammavariate(shape + 1, scale_s)
        )
        while at_s < span_s:
            drawn.append(Arrival(at_s, _length(self.num_input, random), _length(self.num_output, random)))
            at_s += random.gammavariate(shape, scale_s)
        return drawn


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic of all services, over ``span_s``."""

    span_s: float
    services: Mapping[str, ServiceTraffic]

    @classmethod
    def recorded(cls, requests: Mapping[str, Sequence[Arrival]], span_s: float) -> "Traffic":
        return cls(span_s, {name: ServiceTraffic.recorded(those, span_s) for name, those in requests.items()})

    def rate(self, service: str) -> float:
        """0 for a service that nobody asked for."""
        found = self.services.get(service)
        return found.rate if found is not None else 0.0

    def dispersion(self, service: str) -> float:
        found = self.services.get(service)
        return found.dispersion if found is not None else 1.0

    def with_waiting(self, waiting: Mapping[str, int]) -> "Traffic":
        """Return the traffic with so many requests of each service there before it begins."""
        services = {name: replace(service, num_waiting=waiting.get(name, 0)) for name, service in self.services.items()}
        return Traffic(self.span_s, services)

    def with_short_queues(self) -> "Traffic":
        """No more wait than come: a longer queue takes longer to simulate, and tells plans apart no better."""
        num_waiting = sum(service.num_waiting for service in self.services.values())
        num_coming = sum(service.rate for service in self.services.values()) * self.span_s
        part = min(1.0, num_coming / num_waiting) if num_waiting else 1.0
        waiting = {name: service.num_waiting for name, service in self.services.items() if service.num_waiting}
        return self.with_waiting({name: max(1, round(part * number)) for name, number in waiting.items()})

    def only(self, names: Collection[str]) -> "Traffic":
        """Return the traffic of these services alone."""
        return Traffic(self.span_s, {name: service for name, service in self.services.items() if name in names})

    def drawn_anew(self, seed: int | str) -> "Traffic":
        """Another sample of the same moments."""
        drawn = {name: service._drawn(self.span_s, Random(f"{seed}/{name}")) for name, service in self.services.items()}
        anew = Traffic.recorded(drawn, self.span_s)
        return anew.with_waiting({name: service.num_waiting for name, service in self.services.items()})

    def drawn_unsure(self, span_s: float, seed: int | str) -> "Traffic":
        """A sample of what this may be a sample of: rates and mean lengths are known as well as its requests tell them,
        if they came in such bursts. What is better on many such samples is better by more than chance.
        """
        random = Random(f"{seed}/unsure")
        likely = {name: service.as_likely(self.span_s, random) for name, service in sorted(self.services.items())}
        return Traffic(span_s, likely).drawn_anew(seed)


def _length(moments: Moments, random: Random) -> int:
    """Lognormal: lengths are positive and skewed."""
    mean, deviation = moments
    if mean <= 0:
        return 1
    variance = log(1 + (deviation / mean) ** 2)
    return max(1, round(random.lognormvariate(log(mean) - variance / 2, sqrt(variance))))
