"""Intervals add up while they are alike by what chance explains; one that differs counts alone."""

from random import Random

from mesh.topology.schema import PlacementSpec
from mesh.wire.control import UsualLengths
from mesh.wire.status import ServiceTally
from router.placement.observe.service_monitor import Observed
from router.placement.observe.traffic_seen import FEWEST_LENGTHS, TrafficSeen
from tests.seeds import each_seed

SPAN_S = 100.0


def interval(arrived: int, num_input: int = 100, num_output: int = 50, answered: int | None = None) -> Observed:
    """Requests that are all alike: of ``answered`` of them the answer was seen."""
    ended = arrived if answered is None else answered
    tally = ServiceTally(
        "chat",
        arrived,
        arrived * num_input,
        arrived * num_input**2,
        ended,
        0,
        ended,
        ended * num_output,
        ended * num_output**2,
        1.0 * ended,
    )
    return Observed(SPAN_S, {"chat": tally})


def rate(seen: Observed) -> float:
    return seen.services["chat"].arrived / seen.span_s


def test_intervals_that_differ_by_chance_add_up():
    seen = TrafficSeen.of(PlacementSpec())
    assert [rate(seen.add([interval(number)])) for number in (400, 440, 390)] == [4.0, 4.2, 4.1]
    assert seen.num_intervals == 3


def test_an_interval_that_chance_does_not_explain_counts_alone():
    seen = TrafficSeen.of(PlacementSpec())
    seen.add([interval(400)])
    assert rate(seen.add([interval(500)])) == 5.0, "3.3 standard deviations"
    assert seen.num_intervals == 1


def test_other_lengths_are_another_traffic_at_the_same_rate():
    seen = TrafficSeen.of(PlacementSpec())
    seen.add([interval(400, num_input=100)])
    assert seen.add([interval(400, num_input=200)]).services["chat"].input_tokens == 400 * 200
    assert seen.num_intervals == 1


def test_few_lengths_tell_nothing():
    seen = TrafficSeen.of(PlacementSpec())
    seen.add([interval(FEWEST_LENGTHS - 1, num_input=100)])
    seen.add([interval(FEWEST_LENGTHS - 1, num_input=900)])
    assert seen.num_intervals == 2


def test_what_counts_begins_where_it_differs_most():
    """The last of three parts of an interval is what services are asked for now."""
    seen = TrafficSeen.of(PlacementSpec())
    seen.add([interval(400)])
    assert rate(seen.add([interval(400), interval(400), interval(900)])) == 9.0


def test_an_interval_that_lasts_shows_a_change_only_beyond_doubt():
    seen = TrafficSeen.of(PlacementSpec())
    seen.add([interval(400)])
    assert not seen.has_changed([interval(500)]), "3.3 standard deviations: its end may tell"
    assert seen.has_changed([interval(560)])
    assert seen.num_intervals == 1, "nothing was added"


def test_answers_of_before_tell_more_than_none():
    seen = TrafficSeen.of(PlacementSpec())
    seen.add([interval(400, num_output=50)])
    planned = seen.add([interval(900, answered=FEWEST_LENGTHS - 1, num_output=999)])
    chat = planned.services["chat"]
    assert (chat.arrived, chat.answered) == (900, 400 + FEWEST_LENGTHS - 1)
    assert chat.output_tokens == 400 * 50 + (FEWEST_LENGTHS - 1) * 999


def test_usual_lengths_are_those_of_services_that_were_seen_often_enough():
    seen = TrafficSeen.of(PlacementSpec())
    seen.add([interval(FEWEST_LENGTHS - 1)])
    assert seen.usual_lengths() == []
    seen.add([interval(FEWEST_LENGTHS, num_input=100, num_output=50)])
    assert seen.usual_lengths() == [UsualLengths("chat", 100, 50)]


@each_seed(range(3))
def test_constant_traffic_is_hardly_ever_taken_for_another_one(seed: int):
    random, seen = Random(seed), TrafficSeen.of(PlacementSpec())
    starts = 0
    for _ in range(40):
        seen.add([interval(sum(random.random() < 0.01 for _ in range(4000)))])
        starts += seen.num_intervals == 1
    assert starts <= 3
