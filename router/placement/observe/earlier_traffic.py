"""Keeps what services were asked for before that changed, as it may be so again.

A plan for the last half minute alone takes all engines but one from a service that nobody asked for meanwhile. When its
requests are back, they wait until the daemon has seen them, searched, and loaded weights.
"""

from dataclasses import replace

from msgspec import structs

from mesh.wire.status import CountSpread, ServiceTally
from router.placement.observe.bursts import added_up
from router.placement.observe.service_monitor import SUMS, Observed, together


class EarlierTraffic:
    """Remembers ``most_s`` of it, and lets it count as ``weight_s`` of its mean rates, beside the seconds of what is
    the same by now. ``seen``: all of it together; None: it never changed.
    """

    def __init__(self, weight_s: float, most_s: float, seen: Observed | None = None) -> None:
        self.seen = seen
        self._weight_s, self._most_s = weight_s, most_s

    def add(self, ended: Observed) -> None:
        """It is not the same any more. The longer it lasted, the more of what was before it is forgotten."""
        if self.seen is not None:
            kept_s = min(self.seen.span_s, max(0.0, self._most_s - ended.span_s))
            ended = together([_part(self.seen, kept_s), ended])
        self.seen = _part(ended, min(ended.span_s, self._most_s))

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
