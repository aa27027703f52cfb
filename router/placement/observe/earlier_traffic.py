"""Keeps what services were asked for before that changed, as it may be so again.

A plan for the last half minute alone takes all engines but one from a service that nobody asked for meanwhile. When its
requests are back, they wait until the daemon has seen them, searched, and loaded weights.
"""

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from mesh.wire.status import CountSpread, ServiceTally
from router.placement.observe.bursts import added_up
from router.placement.observe.service_monitor import SUMS, Observed, together
from router.placement.observe.shifts import NO_SHIFTS, Shifts, part_that_stays


class EarlierTraffic:
    """Remembers ``most_s`` of it, and lets it count as ``weight_s`` of its mean rates, beside the seconds of what is
    the same by now. ``seen``: all of it together; None: it never changed. ``num_shifts``: the number of loads that it
    consists of. ``squares``: of each service, the sum over them of the square of its requests by the load's seconds.
    Both are in proportion to what is remembered.
    """

    def __init__(
        self,
        weight_s: float,
        most_s: float,
        seen: Observed | None = None,
        num_shifts: float = 0.0,
        squares: Mapping[str, float] | None = None,
    ) -> None:
        self.seen = seen
        self.num_shifts = num_shifts if seen is None else max(1.0, num_shifts)  # a predecessor may not have counted
        self.squares = dict(squares or {})
        self._weight_s, self._most_s = weight_s, most_s

    def add(self, ended: Observed) -> None:
        """It is not the same any more. The longer it lasted, the more of what was before it is forgotten."""
        known_s = self.seen.span_s if self.seen is not None else 0.0
        kept_s = min(known_s, max(0.0, self._most_s - ended.span_s))
        kept = kept_s / known_s if known_s else 0.0
        self.num_shifts = kept * self.num_shifts + 1
        self.squares = {name: kept * square for name, square in self.squares.items()}
        for name, tally in ended.services.items():
            self.squares[name] = self.squares.get(name, 0.0) + tally.arrived**2 / ended.span_s
        if self.seen is not None:
            ended = together([_part(self.seen, kept_s), ended])
        self.seen = _part(ended, min(ended.span_s, self._most_s))

    def shifts(self, now: Observed, search_s: float, lag_s: float) -> Shifts:
        """Return what is to be expected beside the load that there is ``now``; see `part_that_stays`."""
        if self.seen is None:
            return NO_SHIFTS
        both = together([self.seen, now])
        rates = {name: tally.arrived / both.span_s for name, tally in both.services.items()}
        stays = part_that_stays(both.span_s / self.num_shifts, search_s, lag_s)
        return Shifts(stays, rates, {name: self._spread(name, both, now) for name in rates})

    def _spread(self, name: str, both: Observed, now: Observed) -> float:
        """The squared coefficient of variation of a service's rates between loads, beyond what chance explains (the
        estimator of a random effect by the analysis of variance).
        """
        arrived, mean_s = both.services[name].arrived, both.span_s / (self.num_shifts + 1)
        rate = arrived / both.span_s
        own = now.services.get(name, ServiceTally(name)).arrived ** 2 / now.span_s
        between = (self.squares.get(name, 0.0) + own - rate * arrived) / self.num_shifts
        variance = (between - both.dispersion(name) * rate) / mean_s
        return max(0.0, variance) / rate**2 if rate else 0.0

    def beside(self, now: Observed) -> Observed:
        """Return what is to be planned for: services that were asked for more are asked for more than now, the less so
        the longer ``now`` has lasted. Others are asked for what they are asked for now.
        """
        if self.seen is None or self.seen.span_s <= 0:
            return now
        services, spreads = dict(now.services), dict(now.spreads)
        for name, tally in self.seen.services.items():
            there = now.services.get(name, ServiceTally(name))
            expected = there.arrived + tally.arrived * self._weight_s / self.seen.span_s
            missing = expected * now.span_s / (now.span_s + self._weight_s) - there.arrived
            if missing > 0.5:
                services[name] = _with(there, tally, round(missing))
                spreads.update(added_up([_only(name, now), _only(name, self.seen)]))
        return replace(now, services=services, spreads=spreads)


def _only(name: str, seen: Observed) -> dict[str, CountSpread]:
    return {name: seen.spreads[name]} if name in seen.spreads else {}


def _with(there: ServiceTally, like: ServiceTally, number: int) -> ServiceTally:
    """So many requests more, with prompts like those."""
    return structs.replace(
        there,
        arrived=there.arrived + number,
        input_tokens=there.input_tokens + like.input_tokens * number // like.arrived,
        input_squares=there.input_squares + like.input_squares * number // like.arrived,
    )


def _part(seen: Observed, span_s: float) -> Observed:
    """Return what was seen as if it had been so for ``span_s`` only."""
    part = span_s / seen.span_s if seen.span_s > 0 else 0.0
    services = {name: _scaled(tally, part) for name, tally in seen.services.items()}
    spreads = {name: _scaled_spread(one, part) for name, one in seen.spreads.items()}
    return Observed(span_s, services, spreads)


def _scaled(tally: ServiceTally, part: float) -> ServiceTally:
    values = {name: part * getattr(tally, name) for name in SUMS}
    whole = {name: value if name.endswith("_s") else round(value) for name, value in values.items()}
    return structs.replace(tally, **whole)


def _scaled_spread(spread: CountSpread, part: float) -> CountSpread:
    """Where no pair is left, nothing is known of bursts."""
    num_pairs = round(part * spread.pairs)
    return CountSpread(num_pairs, part * spread.arrived, part * spread.squares) if num_pairs else CountSpread()
