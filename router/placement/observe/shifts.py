"""The time for which services are asked for the same, and what comes after it, as far as earlier shifts tell.

A plan is made for traffic that was seen, and serves what comes. Loads that last for less than the daemon takes to
listen, to search and to change are over by then. So a change must pay for what is likely to come: for a part of the
time that is the present load, and then another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp
from random import Random

from router.placement.observe.traffic import ServiceTraffic, Traffic

MOST_SPREAD = 1.0  # of rates between loads, as that of exponential ones


@dataclass(frozen=True, slots=True)
class Shifts:
    """``stays``: the part of the time until the next change of plans in which it is the present load. ``rates``: of
    services over all loads, requests a second; ``spread``: the coefficient of variation of a load's rates around them.
    """

    stays: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.0

    def other(self, asked: Traffic, seed: int | str) -> Traffic:
        """Draw the rates of another load. Lengths and bursts of services are as ``asked``, and nothing waits."""
        random = Random(f"{seed}/other")
        return Traffic(
            asked.span_s, {name: self._other(name, asked.services[name], random) for name in sorted(asked.services)}
        )

    def _other(self, name: str, asked: ServiceTraffic, random: Random) -> ServiceTraffic:
        shape = self.spread**-2 if self.spread > 0 else 0.0
        factor = random.gammavariate(shape, 1 / shape) if shape else 1.0
        return replace(asked, rate=factor * self.rates.get(name, asked.rate), num_waiting=0)


NO_SHIFTS = Shifts()


def part_that_stays(life_s: float, time_s: float) -> float:
    """Return the mean part of so much time to come in which a load is not over. Loads end at any moment with the same
    chance, after ``life_s`` on average.
    """
    ratio = time_s / life_s
    return (1 - exp(-ratio)) / ratio if ratio > 0 else 1.0
