"""The placement daemon's core, against a mesh that is all arithmetic."""

import pytest

from mesh.rules import PlacementMode
from router.placement.daemon import SEARCH_S
from tests.router.placement.daemon_world import World
from tests.router.placement.shifting import TWO, shifted
from tests.seeds import each_seed


@each_seed(1, most=8)
def test_what_is_asked_for_moves_services_and_none_is_ever_without_an_engine(seed: int):
    world = shifted(seed, loss=0.3)
    assert world.status().decision.verdict != "replace"
    before = world.held()
    while world.status().changes_total == 0:
        assert world.now < 1300, world.notes
        world.step()
        assert world.served() == {"a", "b"}
    assert world.held() != before
    assert sum("b" in services for services in world.held().values()) >= 3
    world.run(100)
    assert world.status().changes_total == 1
    assert world.status().decision.achieved.attainment > 0.95
    assert world.status().plan == 1


@each_seed(1, most=4)
def test_constant_load_changes_nothing(seed: int):
    world = World(TWO, seed, loss=0.2)
    world.ask_for(a=12.0, b=4.0)
    world.run(200)
    assert world.told == []
    assert sum(world.status().decisions_total.values()) >= 5
    assert world.held() == {name: sorted(services) for name, services in TWO.items()}


def test_shadow_says_what_it_would_do_and_does_nothing():
    world = shifted(mode=PlacementMode.SHADOW)
    world.until(lambda: world.status().decision.verdict == "replace")
    decision = world.status().decision
    assert sum("b" in place.services for place in decision.places.values()) >= 3
    assert {place.number for place in decision.places.values()} == {1}
    assert decision.proposed.attainment > decision.predicted.attainment + 0.1
    world.run(100)
    assert world.told == []
    assert world.status().changes_total == 0


@pytest.mark.parametrize("mode", list(PlacementMode))
def test_it_waits_between_its_turns_whatever_it_may_do(mode: PlacementMode):
    world = shifted(mode=mode) if mode is not PlacementMode.OFF else World(TWO, mode=mode)
    world.run(100)
    assert (world.told == []) is (mode is not PlacementMode.APPLY)


def test_what_is_told_of_a_decision():
    world = shifted()
    world.until(lambda: world.status().decision.verdict == "replace")
    decision = world.status().decision
    [a, b] = decision.services
    assert (a.name, b.name) == ("a", "b")
    assert 4.0 < a.rate < 9.0, "12 until lately, and 4 now"
    assert b.rate == pytest.approx(12.0, rel=0.5)
    assert b.num_input == (10.0, 0.0)
    assert b.achieved < 0.7
    assert b.predicted < b.proposed
    world.until(lambda: world.status().changes_total == 1)
    assert world.status().made == decision
    assert world.status().error is None


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_a_plan_is_searched_for_with_those_that_wait(loss: float):
    world = World(TWO, loss=loss)
    world.ask_for(a=12.0, b=4.0)
    for gateway, number in zip(world.gateways, (30, 12), strict=True):
        gateway.waiting = {"b": number}
    world.until(lambda: len(world.asked) == 1)
    assert {name: one.num_waiting for name, one in world.asked[0].asked.services.items()} == {"a": 0, "b": 42}
    world.gateways[0].waiting = {"a": 5, "b": 31}
    world.until(lambda: len(world.asked) == 2)
    assert {name: one.num_waiting for name, one in world.asked[1].asked.services.items()} == {"a": 5, "b": 43}


def test_bursts_are_planned_for():
    world = World(TWO, interval_s=60.0, shortest_s=60.0)
    while not world.asked:
        for rate in (20.0, 2.0):
            world.ask_for(a=rate, b=4.0)
            world.run(5)
    asked = world.asked[0].asked
    assert asked.dispersion("a") > 2.0
    assert asked.dispersion("b") < 1.3
    world.until(lambda: world.status().decision is not None)
    assert [one.dispersion for one in world.status().decision.services] == [asked.dispersion(name) for name in "ab"]


@pytest.mark.parametrize("since_s", [5.0, 25.0, 45.0, 65.0])
def test_an_interval_ends_with_the_first_part_that_shows_other_traffic(since_s: float):
    """The shift comes so long after an interval of 80 s began, whose parts are of 20 s: two of them show it at most."""
    world = World(TWO, interval_s=80.0)
    world.ask_for(a=12.0, b=4.0)
    world.until(lambda: len(world.asked) == 1)
    world.run(since_s)
    world.ask_for(a=4.0, b=12.0)
    world.until(lambda: len(world.asked) == 2, limit_s=25.0)
    assert world.asked[1].asked.rate("b") > world.asked[1].asked.rate("a"), "what came before does not count"
    world.until(lambda: world.status().changes_total == 1, limit_s=15.0)


def test_an_interval_that_keeps_its_length_does_not_end_early():
    world = World(TWO, interval_s=80.0, shortest_s=80.0)
    world.ask_for(a=12.0, b=4.0)
    world.until(lambda: len(world.asked) == 1)
    world.run(5.0)
    world.ask_for(a=4.0, b=12.0)
    world.run(70.0)
    assert len(world.asked) == 1


def test_traffic_that_stays_ends_no_interval_early():
    world = World(TWO, interval_s=80.0, mode=PlacementMode.SHADOW)
    world.ask_for(a=12.0, b=4.0)
    world.until(lambda: len(world.asked) == 1)
    while len(world.asked) < 6:
        memory, age_s = world.daemon.memory, world.status().interval_age_s
        world.step()
        assert world.daemon.memory.interval == memory.interval or age_s > memory.interval_s - 0.5
    lengths = [question.asked.span_s for question in world.asked]
    assert lengths == sorted(lengths), "intervals add up"


def test_a_search_that_fails_is_told_and_the_next_interval_has_another_one():
    world = shifted()
    world.searches_fail = True
    world.until(lambda: world.status().error is not None)
    assert world.status().error == "the search for a plan failed: no such weather"
    assert world.status().decisions_total["failed"] == 1
    assert world.told == []
    world.searches_fail = False
    world.until(lambda: world.status().changes_total == 1)


def test_a_search_that_does_not_end_is_given_up():
    world = World(TWO, improve_s=1.0)
    world.ask_for(a=4.0, b=12.0)
    world.nobody_answers = True
    world.until(lambda: len(world.asked) == 1)
    world.run(SEARCH_S + 3)
    assert world.status().error.startswith("the search for a plan failed: no answer after 12")
    world.nobody_answers = False
    world.until(lambda: world.status().changes_total == 1)
