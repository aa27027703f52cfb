"""The time for which services are asked for the same, and what comes after it, as far as earlier shifts tell.

A plan is made for traffic that was seen, and serves what comes. Loads that last for less than the daemon takes to
listen, to search and to change are over by then. So a change must pay for what is likely to come: for a part of the
time that is the present load, and then another one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp
from random import Random

from router.placement.observe.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Shifts:
    """``stays``: the part of the time with a plan in which the present load is there. ``rates``: of services over all
    loads, requests a second; ``spreads``: the squared coefficients of variation of their rates from load to load.
    """

    stays: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)

    def others(self, asked: Traffic, number: int, seed: int | str) -> Iterator[Traffic]:
        """Yield so many other loads, if any may come. Lengths and bursts of services are as ``asked``, and nothing
        waits.

        Each service is asked for in some of them, all the same, and not in others: in so many that its rates have that
        mean and that variation. Which these are is drawn for each service by itself.
        """
        if self.stays == 1.0:
            return
        random = Random(seed)
        loads: list[dict[str, float]] = [{} for _ in range(number)]
        for name, service in sorted(asked.services.items()):
            num_busy = max(1, round(number / (1 + self.spreads.get(name, 0.0))))
            for load in random.sample(loads, num_busy):
                load[name] = self.rates.get(name, service.rate) * number / num_busy
        for load in loads:
            services = asked.services.items()
            yield Traffic(
                asked.span_s,
                {name: replace(one, rate=load.get(name, 0.0), num_waiting=0) for name, one in services},
            )


NO_SHIFTS = Shifts()


def part_that_stays(life_s: float, search_s: float, lag_s: float) -> float:
    """Return the part of the time with a plan in which the load that it is for is there still. Loads end at any moment
    with the same chance, after ``life_s`` on average. The search takes ``search_s``, and after the end of a load it
    takes ``lag_s`` until there is another plan.
    """
    stays_s = life_s * exp(-search_s / life_s)
    return stays_s / (stays_s + lag_s)
