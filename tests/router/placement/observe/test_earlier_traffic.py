"""What services were asked for before counts beside what they are asked for now, where it was more."""

import pytest

from mesh.topology.schema import PlacementSpec
from mesh.wire.status import CountSpread, Memory, ServiceTally
from router.placement.observe.earlier_traffic import EarlierTraffic
from router.placement.observe.service_monitor import Observed
from router.placement.observe.traffic_seen import TrafficSeen

WEIGHT_S, MOST_S = 30.0, 600.0
SPEC = PlacementSpec(shortest_s=WEIGHT_S, longest_s=MOST_S)


def seen(span_s: float, num_input: int = 100, **arrived: int) -> Observed:
    tallies = {
        name: ServiceTally(name, number, number * num_input, number * num_input**2) for name, number in arrived.items()
    }
    return Observed(span_s, tallies, {name: CountSpread(10, number, 3 * number) for name, number in arrived.items()})


def rates(observed: Observed) -> dict[str, float]:
    return {name: pytest.approx(tally.arrived / observed.span_s, abs=0.02) for name, tally in observed.services.items()}


def test_without_a_change_nothing_counts_but_what_is_seen():
    now = seen(30.0, chat=60)
    assert EarlierTraffic(WEIGHT_S, MOST_S).beside(now) is now
    traffic = TrafficSeen.of(SPEC)
    assert traffic.add([now]) == now
    assert traffic.earlier.seen is None


def test_a_service_that_was_asked_for_more_is_planned_for():
    earlier = EarlierTraffic(WEIGHT_S, MOST_S)
    earlier.add(seen(120.0, num_input=300, chat=240, code=12))
    beside = earlier.beside(seen(WEIGHT_S, code=60))
    assert rates(beside) == {"chat": 1.0, "code": 2.0}
    assert beside.services["chat"].input_tokens == 300 * 30
    assert beside.services["code"] == seen(WEIGHT_S, code=60).services["code"]
    assert beside.spreads["chat"] == CountSpread(10, 240, 720)


def test_it_counts_the_less_the_longer_it_is_over():
    earlier = EarlierTraffic(WEIGHT_S, MOST_S)
    earlier.add(seen(120.0, chat=240))
    found = [rates(earlier.beside(seen(span_s, code=int(span_s))))["chat"] for span_s in (30.0, 90.0, 570.0)]
    assert found == [1.0, 0.5, 0.1]


def test_what_is_long_ago_is_forgotten():
    earlier = EarlierTraffic(WEIGHT_S, MOST_S)
    earlier.add(seen(MOST_S, chat=600))
    earlier.add(seen(MOST_S / 2, code=300))
    assert earlier.seen is not None
    assert (earlier.seen.span_s, rates(earlier.seen)) == (MOST_S, {"chat": 0.5, "code": 0.5})
    earlier.add(seen(2 * MOST_S, code=2400))
    assert (earlier.seen.span_s, rates(earlier.seen)) == (MOST_S, {"chat": 0.0, "code": 2.0})


def test_of_bursts_that_are_forgotten_nothing_is_known():
    earlier = EarlierTraffic(WEIGHT_S, MOST_S)
    earlier.add(Observed(MOST_S, seen(1.0, chat=6000).services, {"chat": CountSpread(1, 600.0, 900.0)}))
    earlier.add(seen(0.9 * MOST_S, code=600))
    beside = earlier.beside(seen(30.0, code=30))
    assert beside.spreads["chat"] == CountSpread()
    assert beside.dispersion("chat") == 1.0


def test_a_change_is_remembered_by_who_comes_after():
    traffic = TrafficSeen.of(SPEC)
    traffic.add([seen(60.0, chat=240, code=0)])
    planned = traffic.add([seen(60.0, chat=0, code=240)])
    assert rates(planned) == {"chat": 4.0 / 3, "code": 4.0}
    assert rates(traffic.seen or planned) == {"chat": 0.0, "code": 4.0}
    told = TrafficSeen.of(SPEC, Memory(3, 60.0, **traffic.told()))
    assert (told.told(), told.num_intervals) == (traffic.told(), 1)
    assert told.earlier.beside(seen(60.0, chat=0, code=240)) == planned
