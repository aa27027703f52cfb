"""How long loads last, how far they lie apart, and what that makes of the samples that plans are judged on."""

from random import Random
from statistics import fmean, pstdev

import pytest

from mesh.wire.status import CountSpread, ServiceTally
from router.placement.observe.earlier_traffic import EarlierTraffic
from router.placement.observe.service_monitor import Observed
from router.placement.observe.shifts import MOST_SPREAD, NO_SHIFTS, Shifts, part_that_stays
from router.placement.observe.traffic import Moments, ServiceTraffic, Traffic

MOST_S = 1e5


def seen(span_s: float, rates: dict[str, float]) -> Observed:
    """As many requests as rates say, in numbers that vary as Poisson's."""
    counts = {name: round(rate * span_s) for name, rate in rates.items()}
    tallies = {name: ServiceTally(name, number, 100 * number, 10_000 * number) for name, number in counts.items()}
    return Observed(span_s, tallies, {name: CountSpread(100, float(n), float(n)) for name, n in counts.items()})


def after(loads: list[dict[str, float]], span_s: float = 100.0, most_s: float = MOST_S) -> EarlierTraffic:
    earlier = EarlierTraffic(30.0, most_s)
    for load in loads:
        earlier.add(seen(span_s, load))
    return earlier


def test_without_a_shift_all_stays():
    assert EarlierTraffic(30.0, MOST_S).shifts(seen(100.0, {"chat": 1.0}), 60.0) is NO_SHIFTS
    assert NO_SHIFTS.stays == 1.0


def test_what_a_predecessor_left_that_counted_no_shifts_is_one_load():
    left = EarlierTraffic(30.0, MOST_S, seen(100.0, {"chat": 1.0}))
    assert left.shifts(seen(100.0, {"chat": 1.0}), 60.0).stays == pytest.approx(part_that_stays(200.0, 60.0))


def test_the_part_that_stays_is_the_mean_over_the_time():
    assert part_that_stays(10.0, 0.0) == 1.0
    chances = [2.718281828 ** -(at_s / 50.0) for at_s in range(100)]
    assert part_that_stays(50.0, 100.0) == pytest.approx(fmean(chances), abs=0.01)


def test_loads_that_were_short_are_likely_to_be_over_soon():
    short, long = (
        after([{"chat": 1.0}] * 5, span_s).shifts(seen(span_s, {"chat": 2.0}), 60.0) for span_s in (20.0, 2e3)
    )
    assert (short.stays, long.stays) == (pytest.approx(0.37, abs=0.02), pytest.approx(0.99, abs=0.01))


def test_a_shift_that_is_forgotten_does_not_count():
    earlier = after([{"chat": 1.0}] * 10, span_s=100.0, most_s=400.0)
    assert earlier.num_shifts == pytest.approx(4.0, abs=0.6)
    assert earlier.squares == {"chat": pytest.approx(400.0, rel=0.01)}


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_the_spread_of_rates_is_found(spread):
    random = Random(3)

    def load() -> dict[str, float]:
        return {f"s{k}": 2.0 * (random.gammavariate(spread**-2, spread**2) if spread else 1.0) for k in range(4)}

    found = after([load() for _ in range(60)]).shifts(seen(100.0, load()), 60.0)
    assert found.spread == pytest.approx(spread, abs=0.15)
    assert found.rates["s0"] == pytest.approx(2.0, rel=0.3)


def test_what_chance_explains_is_no_spread():
    """Of bursts, that is more."""
    random = Random(4)
    loads = [{"chat": random.gammavariate(100.0, 0.01)} for _ in range(40)]  # the mean of 100 s of Poisson arrivals
    assert after(loads).shifts(seen(100.0, loads[0]), 60.0).spread < 0.1


def test_a_spread_has_a_bound():
    loads = [{"chat": 100.0 if number == 5 else 0.01} for number in range(10)]
    assert after(loads).shifts(seen(100.0, {"chat": 0.01}), 60.0).spread == MOST_SPREAD


def test_another_load_has_rates_of_all_loads_and_lengths_as_they_are_now():
    lengths = Moments(100.0, 50.0)
    asked = Traffic(60.0, {name: ServiceTraffic(9.0, lengths, lengths, num_waiting=3, dispersion=2.0) for name in "ab"})
    shifts = Shifts(0.5, {"a": 2.0}, 0.5)
    others = [shifts.other(asked, seed).services for seed in range(400)]
    rates = [other["a"].rate for other in others]
    assert fmean(rates) == pytest.approx(2.0, abs=0.15)
    assert pstdev(rates) / fmean(rates) == pytest.approx(0.5, abs=0.1)
    assert (others[0]["a"].num_input, others[0]["a"].dispersion, others[0]["a"].num_waiting) == (lengths, 2.0, 0)
    assert others[0]["a"].rate / 2.0 != others[0]["b"].rate / 9.0, "services shift by themselves"
    assert shifts.other(asked, 1) == shifts.other(asked, 1)
