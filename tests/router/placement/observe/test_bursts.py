"""How much requests come in bursts, as gateways' statuses tell it, and what is made of it."""

from bisect import bisect_right
from itertools import pairwise
from random import Random
from statistics import fmean

import pytest

from mesh.topology.schema import PlacementSpec
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.status import CountSpread, GatewayStatus, ServiceTally
from router.placement.observe.bursts import PRIOR_PAIRS, Windows, dispersion, window_s
from router.placement.observe.service_monitor import ServiceMonitor
from router.placement.observe.traffic import Moments, ServiceTraffic, Traffic
from router.placement.observe.traffic_seen import TrafficSeen
from tests.seeds import each_seed, is_night

LENGTHS = Moments(100.0, 50.0)
RATE, BURSTS = 4.0, 3.6  # requests a second; gaps with a coefficient of variation of 1.9, as in a trace of functions


def arrivals(rate, variation, span_s, seed):
    traffic = ServiceTraffic(rate, LENGTHS, LENGTHS, dispersion=variation)
    return [request.at_s for request in traffic.arrivals(span_s, Random(seed))]


def variance_over_mean(times, length_s, span_s):
    counts = [0] * int(span_s / length_s)
    for at_s in times:
        counts[min(int(at_s / length_s), len(counts) - 1)] += 1
    mean = fmean(counts)
    return fmean((count - mean) ** 2 for count in counts) / mean


@pytest.mark.parametrize("variation", [0.5, 1.0, BURSTS, 10.0])
def test_what_is_drawn_has_the_rate_and_the_dispersion(variation):
    times = arrivals(RATE, variation, 20_000.0, seed=1)
    assert len(times) / 20_000.0 == pytest.approx(RATE, rel=0.05)
    assert variance_over_mean(times, 20.0, 20_000.0) == pytest.approx(variation, rel=0.2)


@pytest.mark.parametrize("variation", [1.0, BURSTS, 10.0])
def test_the_first_request_comes_no_sooner_for_bursts(variation):
    """Short samples have the rate, too."""
    drawn = [len(arrivals(RATE, variation, 5.0, seed)) for seed in range(2000)]
    assert fmean(drawn) == pytest.approx(5.0 * RATE, rel=0.06)


def heard(gateways, span_s, heartbeat_s, window=5.0, monitor=None, random=None):
    """What a monitor knows of gateways that these times of arrivals come to, and whose statuses are not in step."""
    random, monitor = random or Random(0), monitor or ServiceMonitor(0.0, window)
    beats = [
        (number * heartbeat_s + random.uniform(0, heartbeat_s), gateway)
        for gateway in range(len(gateways))
        for number in range(int(span_s / heartbeat_s))
    ]
    for gateway in range(len(gateways)):
        monitor.observe(Sender(f"gateway-{gateway}", 1), _status(0), 0.0)
    for now, gateway in sorted(beats):
        count = bisect_right(gateways[gateway], now)
        monitor.observe(Sender(f"gateway-{gateway}", 1), _status(count), now)
    return monitor


def _status(count):
    tally = ServiceTally("chat", count, 100 * count, 10_000 * count)
    return GatewayStatus(1, ProcessState.READY, "local", 1, "", 0, 0, services=[tally])


@pytest.mark.parametrize("variation", [1.0, BURSTS])
@each_seed(range(5))
def test_a_monitor_tells_bursts_from_statuses_that_are_not_in_step(variation, seed):
    times = arrivals(RATE, variation, 1200.0, seed)
    told = heard([times], 1200.0, heartbeat_s=1.0).observed(1200.0).dispersion("chat")
    assert told == pytest.approx(variation, rel=0.35)


@pytest.mark.parametrize("rate", [0.1, 0.4, 1.6])
def test_bursts_of_few_requests_are_seen(rate):
    """In windows that have half a request to eight on average, and look more like Poisson arrivals than longer ones."""
    windows = Windows(0.0, 5.0)
    for at_s in arrivals(rate, BURSTS, 20_000.0, seed=1):
        windows.add({"chat": 1}, at_s, at_s)
    [spread] = windows.spreads(0.0, 20_000.0).values()
    assert dispersion(spread) == pytest.approx(BURSTS, rel=0.15)
    assert spread.squares / spread.arrived < 0.92 * BURSTS


@each_seed(range(5) if is_night() else range(2))
def test_bursts_that_are_spread_over_gateways_are_seen(seed):
    """Each of them has a share, drawn at random, that looks less like bursts."""
    times, random = arrivals(RATE, BURSTS, 1200.0, seed), Random(seed)
    shares = [[], [], []]
    for at_s in times:
        random.choice(shares).append(at_s)
    together = heard(shares, 1200.0, heartbeat_s=0.5).observed(1200.0).dispersion("chat")
    alone = heard(shares[:1], 1200.0, heartbeat_s=0.5).observed(1200.0).dispersion("chat")
    assert together == pytest.approx(BURSTS, rel=0.35)
    assert alone < 0.75 * together


@each_seed(range(5))
def test_statuses_that_are_lost_take_nothing_from_it(seed):
    times, random = arrivals(RATE, BURSTS, 1200.0, seed), Random(seed)
    monitor = ServiceMonitor(0.0, 5.0)
    monitor.observe(Sender("a", 1), _status(0), 0.0)
    for second in range(1, 1201):
        if random.random() < 0.7:
            monitor.observe(Sender("a", 1), _status(bisect_right(times, second)), float(second))
    assert monitor.observed(1200.0).dispersion("chat") == pytest.approx(BURSTS, rel=0.35)


def test_a_rate_that_drifts_is_no_burst():
    """It trebles in ten minutes."""
    random, times, at_s = Random(3), [], 0.0
    while at_s < 600.0:
        times.append(at_s)
        at_s += random.expovariate(2.0 + 4.0 * at_s / 600.0)
    assert heard([times], 600.0, heartbeat_s=0.5).observed(600.0).dispersion("chat") == pytest.approx(1.0, abs=0.4)
    assert variance_over_mean(times, 5.0, 600.0) > 2.0


@each_seed(range(5))
def test_a_change_of_rates_counts_for_the_part_before_it(seed):
    times = [*arrivals(2.0, 1.0, 60.0, seed), *(60.0 + at_s for at_s in arrivals(12.0, 1.0, 60.0, seed + 100))]
    monitor = ServiceMonitor(0.0, 5.0)
    monitor.observe(Sender("a", 1), _status(0), 0.0)
    for tick in range(1, 241):
        monitor.observe(Sender("a", 1), _status(bisect_right(times, tick / 2)), tick / 2)
        monitor.look(tick / 2, 30.0)
    parts = monitor.parts(120.0)
    assert [part.span_s for part in parts] == [30.0] * 4
    assert parts[1].spreads["chat"].squares > 5 * parts[1].spreads["chat"].arrived
    after = TrafficSeen.of(PlacementSpec()).add(parts)
    assert after.span_s == 60.0
    assert after.dispersion("chat") < 1.8


def test_parts_of_an_interval_add_up_to_it():
    times = arrivals(RATE, BURSTS, 200.0, seed=2)
    monitor = ServiceMonitor(0.0, 5.0)
    for second in range(201):
        monitor.observe(Sender("a", 1), _status(bisect_right(times, second)), float(second))
        monitor.look(float(second), 25.0)
    whole, parts = monitor.observed(200.0).spreads["chat"], [part.spreads["chat"] for part in monitor.parts(200.0)]
    for field in CountSpread.__struct_fields__:
        assert sum(getattr(part, field) for part in parts) == pytest.approx(getattr(whole, field))
    assert whole.pairs == 38, "of 40 windows; the last one may not be complete"


def test_an_interval_begins_with_its_own_windows():
    monitor = heard([arrivals(RATE, BURSTS, 100.0, seed=1)], 100.0, heartbeat_s=0.5)
    monitor.begin(100.0)
    assert monitor.observed(100.0).spreads == {}
    assert monitor.observed(100.0).dispersion("chat") == 1.0


def test_little_is_known_of_few_windows():
    assert dispersion(CountSpread()) == 1.0
    few, many = (CountSpread(pairs, 20.0 * pairs, 200.0 * pairs) for pairs in (2, 2000))
    assert 1.0 < dispersion(few) < 3.0
    assert dispersion(many) == pytest.approx(10.0, rel=0.1)
    assert dispersion(CountSpread(1000, 2.0, 8.0)) < 3.0, "two requests tell no more than two"
    assert dispersion(CountSpread(int(PRIOR_PAIRS), 500.0 * PRIOR_PAIRS, 0.0)) == pytest.approx(0.5, abs=0.01), (
        "constant"
    )


def test_a_window_has_some_heartbeats_and_some_fit_into_the_shortest_interval():
    assert window_s(shortest_s=30.0, heartbeat_s=0.2) == 5.0
    assert window_s(shortest_s=6.0, heartbeat_s=0.2) == 1.0
    assert window_s(shortest_s=6.0, heartbeat_s=1.0) == 4.0


def test_windows_forget():
    windows = Windows(0.0, 5.0)
    for second in range(1000):
        windows.add({"chat": 1}, second, second + 1)
        windows.forget(second)
    assert repr(windows) == "<Windows of 5.0 s, 1 of them>"


@each_seed(range(10) if is_night() else range(4))
def test_bursts_are_no_other_traffic(seed):
    """Intervals of a minute, in four parts: what would be 4 deviations of Poisson arrivals is 2 of these."""
    times = arrivals(RATE, BURSTS, 1200.0, seed)
    monitor, seen, spans = ServiceMonitor(0.0, 5.0), TrafficSeen.of(PlacementSpec()), []
    for tick in range(2401):
        monitor.observe(Sender("a", 1), _status(bisect_right(times, tick / 2)), tick / 2)
        monitor.look(tick / 2, 15.0)
        if tick and tick % 120 == 0:
            spans.append(seen.add(monitor.parts(tick / 2)).span_s)
            monitor.begin(tick / 2)
    assert sum(later < earlier for earlier, later in pairwise(spans)) <= 1
    assert seen.seen.dispersion("chat") == pytest.approx(BURSTS, rel=0.5)


def test_what_comes_in_bursts_is_known_less_well():
    even, bursts = (Traffic(60.0, {"chat": ServiceTraffic(10.0, LENGTHS, LENGTHS, dispersion=d)}) for d in (1.0, 9.0))

    def deviation(traffic):
        rates = [traffic.services["chat"].as_likely(60.0, Random(seed)).rate for seed in range(500)]
        assert fmean(rates) == pytest.approx(10.0, rel=0.05)
        return fmean((rate - 10.0) ** 2 for rate in rates) ** 0.5

    assert deviation(bursts) == pytest.approx(3 * deviation(even), rel=0.2)
