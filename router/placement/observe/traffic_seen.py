"""Keeps what services are asked for, over as many intervals as it is the same."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, sqrt
from typing import Any

from msgspec import structs

from mesh.topology.schema import PlacementSpec
from mesh.wire.control import UsualLengths
from mesh.wire.status import Memory, ServiceTally
from router.placement.observe.bursts import Spreads
from router.placement.observe.earlier_traffic import EarlierTraffic
from router.placement.observe.service_monitor import Observed, moments_of, together
from router.placement.observe.shifts import NO_SHIFTS, Shifts

DEVIATIONS = 3.0  # between an interval and what was seen before it, for services to be asked for something else
DEVIATIONS_WITHIN = 4.0  # the same in the middle of an interval, where chance has more places to look like a change
FEWEST_LENGTHS = 10  # for their mean to tell anything

NOTHING = Memory(0, 0.0)

Sums = tuple[int, int, int]  # number of lengths, their sum, the sum of their squares


class TrafficSeen:
    """One interval is a small sample: at constant load its rates differ from those of the one before, and a plan that
    suits them better is no better for what comes. So intervals add up until one differs from them by more than chance
    explains: arrivals with the bursts and lengths with the variance that they have. From then on only that one counts,
    or what is left of it from where it differs most from what was before.

    What differs is remembered (`router.placement.observe.earlier_traffic`). And lengths of answers are an exception:
    after a change, and in an overload, few have been answered, or nobody. Until there are some, those of before tell
    more than none.
    """

    def __init__(self, earlier: EarlierTraffic, seen: Observed | None = None, num_intervals: int = 0) -> None:
        self.earlier = earlier
        self.seen = seen  # of all these intervals together; None: there was none yet
        self.num_intervals = num_intervals  # that are in it
        self._answers: dict[str, ServiceTally] = {} if seen is None else dict(seen.services)

    @classmethod
    def of(cls, spec: PlacementSpec, left: Memory = NOTHING) -> "TrafficSeen":
        """Go on with what another daemon left. Earlier traffic counts as the shortest interval, and what is remembered
        of it is as long as the longest.
        """
        earlier = _observed(left.earlier, left.earlier_s, left.earlier_spreads)
        seen = _observed(left.seen, left.seen_s, left.seen_spreads)
        remembered = EarlierTraffic(spec.shortest_s, spec.longest_s, earlier, left.earlier_shifts, left.earlier_squares)
        return cls(remembered, seen, left.seen_intervals)

    def told(self) -> dict[str, Any]:
        """Return the fields of `Memory` that are of this."""
        seen, earlier = (one or Observed(0.0, {}) for one in (self.seen, self.earlier.seen))
        return {
            "seen": list(seen.services.values()),
            "seen_s": seen.span_s,
            "seen_intervals": self.num_intervals,
            "seen_spreads": dict(seen.spreads),
            "earlier": list(earlier.services.values()),
            "earlier_s": earlier.span_s,
            "earlier_spreads": dict(earlier.spreads),
            "earlier_shifts": self.earlier.num_shifts,
            "earlier_squares": dict(self.earlier.squares),
        }

    @property
    def has_any(self) -> bool:
        """Say if anybody asked for anything."""
        return self.seen is not None and any(tally.arrived for tally in self.seen.services.values())

    def add(self, parts: Sequence[Observed]) -> Observed:
        """Add an interval that is over, in one part or several. Return what is to be planned for."""
        whole = [*([] if self.seen is None else [self.seen]), *parts]
        first = 0 if self.seen is None else 1  # part of the interval
        _, at = max((_excess(whole, at, first), -at) for at in range(len(whole)))
        if at:
            self.earlier.add(together(whole[:-at]))
        self.seen = together(whole[-at:])
        self.num_intervals = self.num_intervals + 1 if at == 0 else 1
        return self._with_answers(self.earlier.beside(self.seen), together(parts))

    def shifts(self, search_s: float, interval_s: float) -> Shifts:
        """Return what is to be expected, where a search takes so long, and an interval before it."""
        return NO_SHIFTS if self.seen is None else self.earlier.shifts(self.seen, search_s, interval_s + search_s)

    def _with_answers(self, seen: Observed, last: Observed) -> Observed:
        """With lengths of earlier answers for services of which too few were answered. ``last``: the last interval."""
        for name, tally in last.services.items():
            now, before = seen.services.get(name, tally), self._answers.get(name, ServiceTally(name))
            self._answers[name] = now if now.answered >= FEWEST_LENGTHS else _answers_added(before, tally)
        services = {
            name: tally if tally.answered >= FEWEST_LENGTHS else _with_answers_of(tally, self._answers.get(name, tally))
            for name, tally in seen.services.items()
        }
        return replace(seen, services=services)

    def usual_lengths(self) -> list[UsualLengths]:
        """Return the mean lengths of each service of which enough was seen."""
        arrived = {} if self.seen is None else self.seen.services
        pairs = [(tally, self._answers.get(name, tally)) for name, tally in arrived.items()]
        return [
            UsualLengths(
                tally.name,
                round(tally.input_tokens / tally.arrived),
                round(answered.output_tokens / answered.answered),
            )
            for tally, answered in pairs
            if min(tally.arrived, answered.answered) >= FEWEST_LENGTHS
        ]

    def has_changed(self, parts: Sequence[Observed]) -> bool:
        """Return whether an interval that lasts shows already that services are asked for something else. Ask once for
        each of its parts, when it is over: the oftener it is asked, the more often chance looks like a change.
        """
        whole = [*([] if self.seen is None else [self.seen]), *parts]
        return any(_apart_at(whole, at) > DEVIATIONS_WITHIN for at in range(1, len(whole)))


def _observed(tallies: Sequence[ServiceTally], span_s: float, spreads: Spreads) -> Observed | None:
    """None: nothing was seen."""
    return Observed(span_s, {one.name: one for one in tallies}, spreads) if span_s > 0 else None


def _answers_added(before: ServiceTally, tally: ServiceTally) -> ServiceTally:
    return structs.replace(
        before,
        answered=before.answered + tally.answered,
        output_tokens=before.output_tokens + tally.output_tokens,
        output_squares=before.output_squares + tally.output_squares,
    )


def _with_answers_of(tally: ServiceTally, other: ServiceTally) -> ServiceTally:
    return structs.replace(
        tally, answered=other.answered, output_tokens=other.output_tokens, output_squares=other.output_squares
    )


def _excess(whole: Sequence[Observed], at: int, first: int) -> float:
    """How far what comes from there on is beyond what chance explains; 0 for all of it, which needs no explanation."""
    if at == 0:
        return 0.0
    limit = DEVIATIONS if at == first else DEVIATIONS_WITHIN
    deviations = _apart_at(whole, at)
    return deviations if deviations > limit else -1.0


def _apart_at(whole: Sequence[Observed], at: int) -> float:
    return _deviations(together(whole[:at]), together(whole[at:]))


def _deviations(one: Observed, other: Observed) -> float:
    """Standard deviations between them, of the rate or the mean length of a service where they are farthest apart."""
    both = together([one, other])
    return max((_apart(name, one, other, both) for name in both.services), default=0.0)


def _apart(name: str, before: Observed, after: Observed, both: Observed) -> float:
    """Variances are those of both together: if it is the same traffic, they are known best so."""
    nothing = ServiceTally(name)
    one, other = (part.services.get(name, nothing) for part in (before, after))
    variance = both.dispersion(name) * both.services[name].arrived / both.span_s
    rates = _ratio(
        one.arrived / before.span_s - other.arrived / after.span_s, variance * (1 / before.span_s + 1 / after.span_s)
    )
    inputs = [(tally.arrived, tally.input_tokens, tally.input_squares) for tally in (one, other)]
    outputs = [(tally.answered, tally.output_tokens, tally.output_squares) for tally in (one, other)]
    return max(rates, _means_apart(*inputs), _means_apart(*outputs))


def _means_apart(one: Sums, other: Sums) -> float:
    if min(one[0], other[0]) < FEWEST_LENGTHS:
        return 0.0
    deviation = moments_of(one[0] + other[0], one[1] + other[1], one[2] + other[2]).deviation
    return _ratio(moments_of(*one).mean - moments_of(*other).mean, deviation**2 * (1 / one[0] + 1 / other[0]))


def _ratio(difference: float, variance: float) -> float:
    """Lengths that are all alike have no variance but that of rounding."""
    if abs(difference) < 1e-9:
        return 0.0
    return abs(difference) / sqrt(variance) if variance > 0 else inf
