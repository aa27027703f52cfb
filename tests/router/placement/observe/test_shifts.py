"""How long loads last, how far they lie apart, and what that makes of the samples that plans are judged on."""

from random import Random
from statistics import fmean

import pytest

from mesh.wire.status import CountSpread, ServiceTally
from router.placement.observe.earlier_traffic import EarlierTraffic
from router.placement.observe.service_monitor import Observed
from router.placement.observe.shifts import NO_SHIFTS, Shifts, part_that_stays
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
    assert EarlierTraffic(30.0, MOST_S).shifts(seen(100.0, {"chat": 1.0}), 10.0, 60.0) is NO_SHIFTS
    assert NO_SHIFTS.stays == 1.0


def test_what_a_predecessor_left_that_counted_no_shifts_is_one_load():
    left = EarlierTraffic(30.0, MOST_S, seen(100.0, {"chat": 1.0}))
    assert left.shifts(seen(100.0, {"chat": 1.0}), 10.0, 60.0).stays == pytest.approx(
        part_that_stays(200.0, 10.0, 60.0)
    )


def test_the_part_that_stays_is_what_is_left_of_loads_when_plans_for_them_come():
    random = Random(1)
    lives = [random.expovariate(1 / 50.0) for _ in range(20_000)]
    with_it = sum(max(0.0, life_s - 20.0) for life_s in lives)
    assert part_that_stays(50.0, 20.0, 100.0) == pytest.approx(with_it / (with_it + 100.0 * len(lives)), rel=0.03)
    assert part_that_stays(1e9, 20.0, 100.0) == pytest.approx(1.0)


def test_loads_that_were_short_are_likely_to_be_over_soon():
    short, long = (
        after([{"chat": 1.0}] * 5, span_s).shifts(seen(span_s, {"chat": 2.0}), 10.0, 60.0) for span_s in (20.0, 2e3)
    )
    assert (short.stays, long.stays) == (pytest.approx(0.21, abs=0.01), pytest.approx(0.975, abs=0.01))


def test_a_shift_that_is_forgotten_does_not_count():
    earlier = after([{"chat": 1.0}] * 10, span_s=100.0, most_s=400.0)
    assert earlier.num_shifts == pytest.approx(4.0, abs=0.6)
    assert earlier.squares == {"chat": pytest.approx(400.0, rel=0.01)}


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_the_spread_of_rates_is_found(spread):
    random = Random(3)

    def load() -> dict[str, float]:
        return {f"s{k}": 2.0 * (random.gammavariate(spread**-2, spread**2) if spread else 1.0) for k in range(4)}

    found = after([load() for _ in range(200)]).shifts(seen(100.0, load()), 10.0, 60.0)
    assert fmean(found.spreads.values()) == pytest.approx(spread**2, abs=0.1)
    assert found.rates["s0"] == pytest.approx(2.0, rel=0.2)


def test_what_chance_explains_is_no_spread():
    """Of bursts, that is more."""
    random = Random(4)
    loads = [{"chat": random.gammavariate(100.0, 0.01)} for _ in range(40)]  # the mean of 100 s of Poisson arrivals
    assert after(loads).shifts(seen(100.0, loads[0]), 10.0, 60.0).spreads["chat"] < 0.01


def asked(*names: str) -> Traffic:
    lengths = Moments(100.0, 50.0)
    return Traffic(60.0, {name: ServiceTraffic(9.0, lengths, lengths, num_waiting=3, dispersion=2.0) for name in names})


def test_without_a_shift_there_are_no_other_loads():
    assert list(NO_SHIFTS.others(asked("a"), 8, 1)) == []


@pytest.mark.parametrize(("spread", "num_busy"), [(0.0, 8), (1.0, 4), (3.0, 2), (99.0, 1)])
def test_in_other_loads_rates_have_their_mean_and_their_spread(spread, num_busy):
    rates = [load.rate("a") for load in Shifts(0.5, {"a": 2.0}, {"a": spread}).others(asked("a"), 8, 1)]
    assert sorted(rates) == [0.0] * (8 - num_busy) + [16.0 / num_busy] * num_busy


def test_other_loads_are_as_now_but_for_their_rates_and_services_shift_by_themselves():
    shifts = Shifts(0.5, {"a": 2.0}, {"a": 1.0, "b": 1.0})
    loads = list(shifts.others(asked("a", "b"), 8, 1))
    one = loads[0].services["a"]
    assert (one.num_input, one.dispersion, one.num_waiting) == (Moments(100.0, 50.0), 2.0, 0)
    assert [load.rate("a") > 0 for load in loads] != [load.rate("b") > 0 for load in loads]
    assert loads == list(shifts.others(asked("a", "b"), 8, 1))
