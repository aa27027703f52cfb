"""The service monitor: what gateways say of their services, added up over an interval (SeaLLM, section 3), and over
those before it in which services were asked for the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import msgspec

from mesh.messages import GatewayStatus, Sender, ServiceTally
from router.placement.score import Score, ServiceScore
from router.placement.traffic import Moments, ServiceTraffic, Traffic

DEVIATIONS = 3.0  # between what an interval saw and what was seen before, for services to be asked for something else

FEWEST_LENGTHS = 10  # for their mean to tell anything

SUMS = tuple(field for field in ServiceTally.__struct_fields__ if field != "name")

Tallies = Mapping[str, ServiceTally]
Sums = tuple[int, int, int]  # number of lengths, their sum, the sum of their squares


@dataclass(frozen=True, slots=True)
class Observed:
    """All gateways together, over ``span_s``."""

    span_s: float
    services: Tallies

    def traffic(self) -> Traffic:
        """Rates and moments: requests are to be drawn. Lengths of answers are those of what was answered."""
        return Traffic(self.span_s, {name: self._traffic(tally) for name, tally in self.services.items()})

    def _traffic(self, tally: ServiceTally) -> ServiceTraffic:
        inputs = _moments(tally.arrived, tally.input_tokens, tally.input_squares)
        outputs = _moments(tally.answered, tally.output_tokens, tally.output_squares)
        return ServiceTraffic(tally.arrived / self.span_s, inputs, outputs)

    def score(self, alone_s: Mapping[str, float], promises: Mapping[str, float]) -> Score:
        """What was achieved. ``alone_s``: mean execution time of each service alone, that latency is normalised by.

        Services that are not in it do not count.
        """
        return Score(
            {
                name: ServiceScore(tally.ended, tally.late, tally.latency_s / alone_s[name], promises[name])
                for name, tally in self.services.items()
                if name in alone_s
            }
        )


class TrafficSeen:
    """What services are asked for, over as many intervals as it is the same.

    One interval is a small sample: at constant load its rates differ from those of the one before, and a plan that
    suits them better is no better for what comes. So intervals add up until one differs from them by more than chance
    explains: Poisson arrivals, lengths with the variance that they have. From then on only that one counts.
    """

    def __init__(self, seen: Observed | None = None) -> None:
        self.seen = seen  # of all these intervals together; None: there was none yet

    def add(self, observed: Observed) -> Observed:
        """An interval that is over. What is to be planned for."""
        seen = self.seen
        if seen is not None and not _differ(observed, seen):
            both = _added_up([seen.services, observed.services])
            observed = Observed(seen.span_s + observed.span_s, both)
        self.seen = observed
        return observed


def _differ(one: Observed, other: Observed) -> bool:
    """Whether any service is asked for at another rate, or for other lengths."""
    nothing = {name: ServiceTally(name) for name in one.services.keys() | other.services.keys()}
    return any(
        _differs(tally, one.span_s, other.services.get(name, nothing[name]), other.span_s)
        for name, tally in {**nothing, **one.services}.items()
    )


def _differs(one: ServiceTally, span_s: float, other: ServiceTally, other_span_s: float) -> bool:
    """Variances are those of both together: if it is the same traffic, they are known best so."""
    rate = (one.arrived + other.arrived) / (span_s + other_span_s)
    if _is_beyond(one.arrived / span_s, other.arrived / other_span_s, rate * (1 / span_s + 1 / other_span_s)):
        return True
    inputs = [(tally.arrived, tally.input_tokens, tally.input_squares) for tally in (one, other)]
    outputs = [(tally.answered, tally.output_tokens, tally.output_squares) for tally in (one, other)]
    return _have_other_means(*inputs) or _have_other_means(*outputs)


def _have_other_means(one: Sums, other: Sums) -> bool:
    if min(one[0], other[0]) < FEWEST_LENGTHS:
        return False
    mine, theirs = _moments(*one).mean, _moments(*other).mean
    deviation = _moments(one[0] + other[0], one[1] + other[1], one[2] + other[2]).deviation
    return _is_beyond(mine, theirs, deviation**2 * (1 / one[0] + 1 / other[0]))


def _is_beyond(one: float, other: float, variance: float) -> bool:
    return abs(one - other) > DEVIATIONS * sqrt(variance)


class _Life(NamedTuple):
    """Of a gateway, as far as it was heard."""

    incarnation: int
    start: Tallies  # of the interval
    last: Tallies


class ServiceMonitor:
    """Sums are gateways' own, so statuses that are lost, late or repeated do no harm."""

    def __init__(self, now: float) -> None:
        self._began_at = now
        self._lives: dict[str, _Life] = {}
        self._over: list[Tallies] = []  # what lives brought to this interval that have ended in it

    def __repr__(self) -> str:
        return f"<ServiceMonitor of {sorted(self._lives)}>"

    def observe(self, sender: Sender, status: GatewayStatus) -> None:
        said = {tally.name: tally for tally in status.services}
        life = self._lives.get(sender.process)
        if life is None:
            # What it counted before anybody listened belongs to no interval.
            self._lives[sender.process] = _Life(sender.incarnation, said, said)
        elif sender.incarnation > life.incarnation:
            self._over.append(_difference(life))
            self._lives[sender.process] = _Life(sender.incarnation, {}, said)
        elif sender.incarnation == life.incarnation and _is_later(said, life.last):
            self._lives[sender.process] = life._replace(last=said)

    def observed(self, now: float) -> Observed:
        """Since the interval began."""
        parts = [*self._over, *map(_difference, self._lives.values())]
        return Observed(max(now - self._began_at, 1e-9), _added_up(parts))

    def resume(self, began_at: float, starts: Mapping[str, Tallies]) -> None:
        """Go on with an interval that another monitor began. ``starts``: what gateways had counted then."""
        self._began_at = began_at
        self._lives = {
            process: life._replace(start=starts.get(process, life.start)) for process, life in self._lives.items()
        }

    def begin(self, now: float) -> None:
        """Another interval."""
        self._began_at, self._over = now, []
        self._lives = {process: life._replace(start=life.last) for process, life in self._lives.items()}


def _difference(life: _Life) -> Tallies:
    return {
        name: _combined(name, tally, life.start.get(name, ServiceTally(name)), -1) for name, tally in life.last.items()
    }


def _added_up(parts: Iterable[Tallies]) -> Tallies:
    total: dict[str, ServiceTally] = {}
    for part in parts:
        for name, tally in part.items():
            total[name] = _combined(name, total.get(name, ServiceTally(name)), tally, 1)
    return total


def _combined(name: str, tally: ServiceTally, other: ServiceTally, sign: int) -> ServiceTally:
    sums = {field: getattr(tally, field) + sign * getattr(other, field) for field in SUMS}
    return msgspec.convert({"name": name, **sums}, ServiceTally)


def _is_later(said: Tallies, last: Tallies) -> bool:
    """Sums only grow."""
    return all(name in said and said[name].arrived >= tally.arrived for name, tally in last.items())


def _moments(number: int, total: float, squares: float) -> Moments:
    if not number:
        return Moments(0.0, 0.0)
    mean = total / number
    return Moments(mean, sqrt(max(0.0, squares / number - mean * mean)))
