"""What gateways say of their services, over intervals."""

from itertools import pairwise
from random import Random

import pytest
from msgspec.structs import replace

from mesh.topology.schema import PlacementSpec
from mesh.wire.control import ProcessState, UsualLengths
from mesh.wire.frames import Sender
from mesh.wire.status import GatewayStatus, ServiceTally
from router.placement.observe.bursts import WINDOW_S
from router.placement.observe.service_monitor import Observed, ServiceMonitor
from router.placement.observe.traffic import Moments
from router.placement.observe.traffic_seen import TrafficSeen
from tests.seeds import each_seed


def status(*tallies):
    return GatewayStatus(1, ProcessState.READY, "local", 1, "", 0, 0, services=list(tallies))


def tally(name, arrived, *, late=0, num_input=10, num_output=4, latency_s=2.0):
    """Requests that are all alike, and have all been answered."""
    inputs, outputs = (arrived * num_input, arrived * num_input**2), (arrived * num_output, arrived * num_output**2)
    return ServiceTally(name, arrived, *inputs, arrived, late, arrived, *outputs, arrived * latency_s)


A1, A2, B1 = Sender("a", 1), Sender("a", 2), Sender("b", 1)


def test_an_interval_is_what_came_between():
    monitor = ServiceMonitor(now=100.0, window_s=WINDOW_S)
    monitor.observe(A1, status(tally("chat", 50)), 100.0)  # of before
    monitor.observe(A1, status(tally("chat", 70, late=4)), 109.0)
    seen = monitor.observed(110.0)
    chat = seen.traffic().services["chat"]
    assert (chat.rate, chat.num_input, chat.num_output) == (2.0, Moments(10.0, 0.0), Moments(4.0, 0.0))
    score = seen.score({"chat": 0.5}, {"chat": 0.9}).services["chat"]
    assert (score.num_requests, score.attainment, score.is_short) == (20, 0.8, True)
    assert score.normalized_latency == 20 * 2.0 / 0.5


def test_gateways_add_up_and_services_that_come_later_count():
    monitor = ServiceMonitor(now=0.0, window_s=WINDOW_S)
    monitor.observe(A1, status(tally("chat", 5)), 0.0)
    monitor.observe(B1, status(), 1.0)
    monitor.observe(A1, status(tally("chat", 15), tally("code", 3)), 2.0)
    monitor.observe(B1, status(tally("chat", 20)), 3.0)
    traffic = monitor.observed(10.0).traffic()
    assert (traffic.rate("chat"), traffic.rate("code"), traffic.rate("other")) == (3.0, 0.3, 0.0)


def test_the_next_interval_begins_where_this_one_ends():
    monitor = ServiceMonitor(now=0.0, window_s=WINDOW_S)
    monitor.observe(A1, status(tally("chat", 0)), 0.0)
    monitor.observe(A1, status(tally("chat", 30)), 1.0)
    monitor.begin(10.0)
    assert monitor.observed(10.0).traffic().rate("chat") == 0.0
    monitor.observe(A1, status(tally("chat", 40)), 15.0)
    assert monitor.observed(20.0).traffic().rate("chat") == 1.0


def test_a_gateway_that_starts_again_counts_from_nothing():
    monitor = ServiceMonitor(now=0.0, window_s=WINDOW_S)
    monitor.observe(A1, status(tally("chat", 100)), 0.0)
    monitor.observe(A1, status(tally("chat", 110)), 1.0)
    monitor.observe(A2, status(tally("chat", 5)), 2.0)
    monitor.observe(A1, status(tally("chat", 111)), 3.0)  # late word of the old incarnation
    assert monitor.observed(10.0).traffic().rate("chat") == 1.5
    monitor.begin(10.0)
    monitor.observe(A2, status(tally("chat", 25)), 15.0)
    assert monitor.observed(20.0).traffic().rate("chat") == 2.0


@each_seed(range(10))
def test_lost_and_reordered_statuses_change_nothing_in_the_end(seed):
    random, monitor = Random(seed), ServiceMonitor(now=0.0, window_s=WINDOW_S)
    said = [status(tally("chat", number)) for number in range(51)]
    monitor.observe(A1, said[0], 0.0)
    some = random.sample(said, 20)
    for one in [*some, said[50], *some]:
        monitor.observe(A1, one, 1.0)
    assert monitor.observed(10.0).traffic().rate("chat") == 5.0


def test_lengths_spread():
    monitor = ServiceMonitor(now=0.0, window_s=WINDOW_S)
    monitor.observe(A1, status(), 0.0)
    monitor.observe(A1, status(ServiceTally("chat", 2, 30, 500, 2, 0, 1, 8, 64, 1.0)), 1.0)
    chat = monitor.observed(1.0).traffic().services["chat"]
    assert chat.num_input == Moments(15.0, 5.0)
    assert chat.num_output == Moments(8.0, 0.0)


@each_seed(range(5))
def test_who_is_there_is_who_came_and_neither_ended_nor_went_away(seed):
    random, monitor, there = Random(seed), ServiceMonitor(now=0.0, window_s=WINDOW_S), dict.fromkeys((A1, B1), 0)
    sums = {gateway: ServiceTally("chat", 7, ended=5, gone=2) for gateway in there}
    for now in range(200):
        gateway = random.choice((A1, B1))
        field = random.choice(("arrived", "ended", "gone")) if there[gateway] else "arrived"
        there[gateway] += 1 if field == "arrived" else -1
        sums[gateway] = replace(sums[gateway], **{field: getattr(sums[gateway], field) + 1})
        monitor.observe(gateway, status(sums[gateway]), now)
        if random.random() < 0.1:
            monitor.begin(now)
        assert monitor.present()["chat"] == sum(there.values())
    monitor.declare_dead(A1)
    assert monitor.present()["chat"] == there[B1], "what was with a gateway that died is not there any more"
    monitor.observe(A2, status(ServiceTally("chat", 3)), 200.0)
    monitor.declare_dead(A1)
    assert monitor.present()["chat"] == there[B1] + 3


# --- several intervals ------------------------------------------------------------------------------------------------


def drawn_interval(random, rates, span_s=100.0, mean=100.0):
    """Poisson arrivals at these rates; lengths of prompts are exponential."""
    services = {}
    for name, rate in rates.items():
        lengths, at_s = [], random.expovariate(rate)
        while at_s < span_s:
            lengths.append(1 + int(random.expovariate(1 / mean)))
            at_s += random.expovariate(rate)
        num, total, squares = len(lengths), sum(lengths), sum(length**2 for length in lengths)
        services[name] = ServiceTally(name, num, total, squares, num, 0, num, 10 * num, 100 * num, 1.0 * num)
    return Observed(span_s, services)


@each_seed(range(20))
def test_intervals_with_the_same_traffic_add_up_and_rates_become_what_they_are(seed):
    random, seen, rates = Random(seed), TrafficSeen.of(PlacementSpec()), {"a": 1.0, "b": 0.1}
    spans = []
    for _ in range(30):
        planned_for = seen.add([drawn_interval(random, rates)])
        spans.append(planned_for.span_s)
    assert sum(later < earlier for earlier, later in pairwise(spans)) <= 2, "chance was taken for a change"
    if spans[-1] > 1000.0:
        assert planned_for.traffic().rate("a") == pytest.approx(1.0, rel=0.12)


@pytest.mark.parametrize(
    ("rates", "mean"), [({"a": 0.3, "b": 0.8}, 100.0), ({"a": 1.0}, 100.0), ({"a": 1.0, "b": 0.1}, 300.0)]
)
def test_an_interval_with_other_traffic_counts_alone(rates, mean):
    random, seen = Random(5), TrafficSeen.of(PlacementSpec())
    for _ in range(5):
        seen.add([drawn_interval(random, {"a": 1.0, "b": 0.1} if mean == 300.0 else {"a": 1.0, "b": 0.3})])
    other = drawn_interval(random, rates, mean=mean)
    planned_for = seen.add([other])
    assert seen.seen == other
    assert planned_for.services["a"].arrived >= other.services["a"].arrived
    assert seen.add([drawn_interval(random, rates, mean=mean)]).span_s == 200.0


def answering(name, arrived, answered, length):
    outputs = answered, answered * length, answered * length**2
    return ServiceTally(name, arrived, 100 * arrived, 10_000 * arrived, answered, 0, *outputs)


def lengths_of(observed):
    return observed.traffic().services["a"].num_output.mean


def test_where_few_were_answered_answers_of_before_tell_how_long_they_are():
    """A shift to so much that nobody is answered: taken for answers of no length, it would be a small load."""
    seen = TrafficSeen.of(PlacementSpec())
    for _ in range(3):
        assert lengths_of(seen.add([Observed(60.0, {"a": answering("a", 60, 60, 300)})])) == 300
    shifted = seen.add([Observed(60.0, {"a": answering("a", 600, 0, 0)})])
    assert (shifted.span_s, shifted.services["a"].arrived) == (60.0, 600), "rates are those of after"
    assert lengths_of(shifted) == 300
    assert seen.seen.services["a"].answered == 0, "what was seen is what was seen"
    few = lengths_of(seen.add([Observed(60.0, {"a": answering("a", 600, 4, 800)})]))
    assert few == pytest.approx((180 * 300 + 4 * 800) / 184)
    assert lengths_of(seen.add([Observed(60.0, {"a": answering("a", 600, 50, 800)})])) == pytest.approx(800)
    assert lengths_of(seen.add([Observed(60.0, {"a": answering("a", 5, 0, 0)})])) == pytest.approx(800)


def test_lengths_are_usual_once_enough_requests_had_them():
    seen = TrafficSeen.of(PlacementSpec())
    assert seen.usual_lengths() == []
    seen.add([Observed(60.0, {"a": answering("a", 60, 50, 300), "b": answering("b", 60, 3, 300)})])
    assert seen.usual_lengths() == [UsualLengths("a", 100, 300)]


def test_nobody_knows_how_long_answers_are_that_never_were():
    assert lengths_of(TrafficSeen.of(PlacementSpec()).add([Observed(60.0, {"a": answering("a", 60, 0, 0)})])) == 0.0


def test_an_interval_in_which_nobody_asks_is_another_traffic():
    seen, random = TrafficSeen.of(PlacementSpec()), Random(1)
    seen.add([drawn_interval(random, {"a": 1.0})])
    nothing = Observed(100.0, {})
    assert seen.add([nothing]).traffic().rate("a") == pytest.approx(1.0 * 30.0 / 130.0, rel=0.2)
    assert (seen.seen, seen.has_any) == (nothing, False)


def in_parts(random, rates_of_parts):
    return [drawn_interval(random, rates, span_s=50.0) for rates in rates_of_parts]


BEFORE, AFTER = {"a": 1.0, "b": 0.1}, {"a": 0.1, "b": 1.0}


@each_seed(range(10))
@pytest.mark.parametrize("num_before", range(5))
def test_what_changes_in_the_middle_of_an_interval_counts_from_there_on(seed, num_before):
    random, seen = Random(seed), TrafficSeen.of(PlacementSpec())
    for _ in range(3):
        seen.add(in_parts(random, [BEFORE] * 4))
    before = seen.seen
    planned_for = seen.add(in_parts(random, [BEFORE] * num_before + [AFTER] * (4 - num_before)))
    if num_before == 4:
        assert planned_for.span_s == before.span_s + 200.0
    else:
        assert planned_for.span_s == 50.0 * (4 - num_before)
        assert planned_for.traffic().rate("b") == pytest.approx(1.0, rel=0.5)


def test_parts_that_are_alike_add_up_however_often_they_are_looked_at():
    random, seen, num_cuts = Random(3), TrafficSeen.of(PlacementSpec()), 0
    for _ in range(100):
        before = 0.0 if seen.seen is None else seen.seen.span_s
        num_cuts += seen.add(in_parts(random, [BEFORE] * 4)).span_s < before + 200.0
    assert num_cuts <= 5


@each_seed(range(10))
def test_a_change_shows_before_the_interval_is_over(seed):
    random, seen = Random(seed), TrafficSeen.of(PlacementSpec())
    for _ in range(3):
        seen.add(in_parts(random, [BEFORE] * 4))
    assert not seen.has_changed(in_parts(random, [BEFORE] * 2))
    assert seen.has_changed(in_parts(random, [BEFORE, AFTER]))
    assert TrafficSeen.of(PlacementSpec()).has_changed(in_parts(random, [BEFORE, AFTER])), "in the first interval, too"


def test_chance_seldom_looks_like_a_change_to_who_asks_with_every_part():
    num_early = 0
    for seed in range(20):
        random, seen = Random(seed), TrafficSeen.of(PlacementSpec())
        for _ in range(20):
            parts = in_parts(random, [BEFORE] * 4)
            num_early += any(seen.has_changed(parts[:number]) for number in (1, 2, 3))
            seen.add(parts)
    assert num_early <= 8, "of 400 intervals"


def test_an_interval_comes_in_the_parts_that_it_was_looked_at_after():
    monitor = ServiceMonitor(now=100.0, window_s=WINDOW_S)
    monitor.observe(A1, status(tally("chat", 7)), 100.0)
    for second in range(1, 42):
        monitor.observe(A1, status(tally("chat", 7 + second)), 100.0 + second)
        monitor.look(100.0 + second, 10.0)
    parts = monitor.parts(142.0)
    assert [part.span_s for part in parts] == [10.0, 10.0, 10.0, 12.0]
    assert [part.services["chat"].arrived for part in parts] == [10, 10, 10, 11]
    monitor.begin(142.0)
    assert [part.span_s for part in monitor.parts(145.0)] == [3.0]


def test_a_monitor_that_goes_on_with_an_interval_takes_starts_of_the_incarnations_that_it_hears():
    """What a gateway had counted before it was started again is nothing to subtract from what it counts now."""
    monitor = ServiceMonitor(now=0.0, window_s=WINDOW_S)
    monitor.observe(A2, status(tally("chat", 3)), 1.0)
    monitor.observe(B1, status(tally("chat", 30)), 1.0)
    monitor.resume(-9.0, {A1: {"chat": tally("chat", 50)}, B1: {"chat": tally("chat", 10)}})
    assert monitor.observed(1.0).traffic().rate("chat") == 2.0
