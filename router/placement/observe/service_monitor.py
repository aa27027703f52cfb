"""The service monitor: what gateways say of their services, added up over an interval (SeaLLM, section 3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

import msgspec

from mesh.wire.frames import Sender
from mesh.wire.status import CountSpread, GatewayStatus, ServiceTally
from router.placement.observe.bursts import Spreads, Windows, added_up, dispersion
from router.placement.observe.traffic import Moments, ServiceTraffic, Traffic
from router.placement.search.score import Score, ServiceScore

SUMS = tuple(field for field in ServiceTally.__struct_fields__ if field != "name")

Tallies = Mapping[str, ServiceTally]


@dataclass(frozen=True, slots=True)
class Observed:
    """All gateways together, over ``span_s``."""

    span_s: float
    services: Tallies
    spreads: Spreads = field(default_factory=dict)

    def traffic(self) -> Traffic:
        """Return rates and moments: requests are to be drawn. Lengths of answers are those of what was answered."""
        return Traffic(self.span_s, {name: self._traffic(tally) for name, tally in self.services.items()})

    def _traffic(self, tally: ServiceTally) -> ServiceTraffic:
        inputs = moments_of(tally.arrived, tally.input_tokens, tally.input_squares)
        outputs = moments_of(tally.answered, tally.output_tokens, tally.output_squares)
        return ServiceTraffic(tally.arrived / self.span_s, inputs, outputs, dispersion=self.dispersion(tally.name))

    def dispersion(self, service: str) -> float:
        """Return the dispersion of the number of its requests; see `router.placement.observe.bursts`."""
        return dispersion(self.spreads.get(service, CountSpread()))

    def score(self, alone_s: Mapping[str, float], promises: Mapping[str, float]) -> Score:
        """Return what was achieved. ``alone_s``: mean execution time of each service alone, that latency is normalised
        by.

        Services that are not in it do not count.
        """
        return Score(
            {
                name: ServiceScore(tally.ended, tally.late, tally.latency_s / alone_s[name], promises[name])
                for name, tally in self.services.items()
                if name in alone_s
            }
        )


def together(parts: Sequence[Observed]) -> Observed:
    """One after the other."""
    return Observed(
        sum(part.span_s for part in parts),
        _added_up(part.services for part in parts),
        added_up(part.spreads for part in parts),
    )


class _Heard(NamedTuple):
    """What was heard of one incarnation of a gateway."""

    incarnation: int
    start: Tallies  # of the interval
    last: Tallies
    heard_s: float
    has_ended: bool = False  # and what was with it is elsewhere, or lost


class ServiceMonitor:
    """Sums are gateways' own, so statuses that are lost, late or repeated do no harm.

    ``window_s``: of which numbers of requests are compared to see bursts.
    """

    def __init__(self, now: float, window_s: float) -> None:
        self._began_at = now
        self._heard: dict[str, _Heard] = {}
        self._over: list[Tallies] = []  # from incarnations that ended in this interval
        self._looks: list[Observed] = []  # at this interval, from its beginning on
        self._windows = Windows(now, window_s)

    def __repr__(self) -> str:
        return f"<ServiceMonitor of {sorted(self._heard)}>"

    def observe(self, sender: Sender, status: GatewayStatus, now: float) -> None:
        said = {tally.name: tally for tally in status.services}
        known = self._heard.get(sender.process)
        if known is None:
            # What it counted before anybody listened belongs to no interval.
            self._heard[sender.process] = _Heard(sender.incarnation, said, said, now)
        elif sender.incarnation > known.incarnation:
            self._over.append(_difference(known))
            self._heard[sender.process] = _Heard(sender.incarnation, {}, said, now)
            self._windows.add(_arrived(said, {}), now, now)
        elif sender.incarnation == known.incarnation and _is_later(said, known.last):
            self._heard[sender.process] = known._replace(last=said, heard_s=now)
            self._windows.add(_arrived(said, known.last), known.heard_s, now)

    def observed(self, now: float) -> Observed:
        """Return what was observed since the interval began."""
        parts = [*self._over, *map(_difference, self._heard.values())]
        spreads = self._windows.spreads(self._began_at, now)
        return Observed(max(now - self._began_at, 1e-9), _added_up(parts), spreads)

    def declare_dead(self, ended: Sender) -> None:
        """An incarnation that somebody saw end, of a gateway or of anybody else."""
        known = self._heard.get(ended.process)
        if known is not None and known.incarnation <= ended.incarnation:
            self._heard[ended.process] = known._replace(has_ended=True)

    def present(self) -> dict[str, int]:
        """Requests of each service that have arrived and not ended, now."""
        there = _added_up(known.last for known in self._heard.values() if not known.has_ended)
        return {name: max(0, tally.arrived - tally.ended - tally.gone) for name, tally in there.items()}

    def look(self, now: float, part_s: float) -> None:
        """A part of the interval ends, if it has lasted for so long."""
        seen_s = self._looks[-1].span_s if self._looks else 0.0
        if now - self._began_at >= seen_s + part_s:
            self._looks.append(self.observed(now))

    @property
    def num_looks(self) -> int:
        """The number of looks at this interval."""
        return len(self._looks)

    def parts(self, now: float) -> list[Observed]:
        """Return the parts of the interval; together they are what was `observed`. What is left in the end counts with
        the last one.
        """
        bounds = [Observed(0.0, {}), *self._looks[:-1], self.observed(now)]
        return [self._between(*pair) for pair in pairwise(bounds)]

    def _between(self, earlier: Observed, later: Observed) -> Observed:
        """Return what was observed between two looks."""
        spreads = self._windows.spreads(self._began_at + earlier.span_s, self._began_at + later.span_s)
        return Observed(later.span_s - earlier.span_s, _subtracted(later.services, earlier.services), spreads)

    def resume(self, began_at: float, starts: Mapping[Sender, Tallies]) -> None:
        """Go on with an interval that another monitor began.

        ``starts``: what incarnations of gateways had counted then.
        """
        self._began_at, self._looks = began_at, []
        for process, known in self._heard.items():
            start = starts.get(Sender(process, known.incarnation), known.start)
            self._heard[process] = known._replace(start=start)

    def begin(self, now: float) -> None:
        """Begin another interval."""
        self._began_at, self._over, self._looks = now, [], []
        self._windows.forget(now)
        self._heard = {process: known._replace(start=known.last) for process, known in self._heard.items()}


def _difference(known: _Heard) -> Tallies:
    return _subtracted(known.last, known.start)


def _arrived(said: Tallies, before: Tallies) -> dict[str, int]:
    return {name: tally.arrived - (before[name].arrived if name in before else 0) for name, tally in said.items()}


def _subtracted(later: Tallies, earlier: Tallies) -> Tallies:
    return {name: _combined(name, tally, earlier.get(name, ServiceTally(name)), -1) for name, tally in later.items()}


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
    """Return whether sums are later ones: they only grow."""
    return all(name in said and said[name].arrived >= tally.arrived for name, tally in last.items())


def moments_of(number: int, total: float, squares: float) -> Moments:
    if not number:
        return Moments(0.0, 0.0)
    mean = total / number
    return Moments(mean, sqrt(max(0.0, squares / number - mean * mean)))
