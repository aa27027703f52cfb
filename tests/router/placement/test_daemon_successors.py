"""A placement daemon dies, and its successor goes on; what others change meanwhile stays."""

from dataclasses import replace

import pytest

from mesh.wire.control import EnginePlace, Role
from router.placement.change.replacement import risk_of
from router.placement.daemon import Doing
from tests.router.placement.daemon_world import World
from tests.router.placement.shifting import TWO, shifted
from tests.seeds import each_seed


# --- successors -------------------------------------------------------------------------------------------------------
@each_seed(1, most=6)
@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_a_successor_goes_on_with_the_interval(seed: int, loss: float):
    world = World(TWO, seed, loss=loss, interval_s=40.0, shortest_s=40.0)
    world.ask_for(a=12.0, b=4.0)
    world.until(lambda: world.status().decision is not None)
    world.until(lambda: world.is_at_rest)
    world.ask_for(a=6.0, b=2.0)
    world.run(5 + world.random.random() * 15)
    before = world.daemon.memory, world.status().interval_age_s
    world.new_daemon()
    world.run(3)
    memory, age_s = world.daemon.memory, world.status().interval_age_s
    assert memory == before[0]
    assert age_s == pytest.approx(before[1] + 3, abs=1.0 if loss else 0.3)
    world.until(lambda: world.status().decision is not None)
    [a, b] = world.status().decision.services
    assert a.rate / b.rate == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_a_successor_plans_for_the_traffic_of_all_intervals_of_before(loss: float):
    world = World(TWO, loss=loss)
    world.ask_for(a=12.0, b=4.0)
    world.until(lambda: len(world.asked) == 3)
    world.until(lambda: world.is_at_rest)
    world.run(3)
    before = world.asked[-1].asked
    world.new_daemon()
    world.until(lambda: len(world.asked) == 4)
    after = world.asked[-1].asked
    assert after.span_s > before.span_s + 10.0 > 50.0
    assert world.asked[-1].risk == risk_of(4) < risk_of(3)
    assert after.rate("a") == pytest.approx(12.0, rel=0.1)


@each_seed(3, most=12)
def test_a_daemon_killed_at_any_moment_leaves_a_change_that_its_successor_finishes(seed: int):
    world = shifted(seed, loss=0.2)
    world.until(lambda: world.daemon.doing is Doing.CHANGING)
    world.run(world.random.random() * 5)
    number = world.daemon.plan.number
    world.new_daemon()
    world.run(15)
    assert world.served() == {"a", "b"}
    world.until(lambda: world.is_at_rest and world.daemon.plan.number >= max(1, number))
    world.until(lambda: sum("b" in services for services in world.held().values()) >= 3)
    world.run(100)
    assert world.is_at_rest
    assert world.status().decision.achieved.attainment > 0.9


def test_a_plan_that_not_all_engines_heard_of_is_forgotten():
    world = World(TWO)
    world.ask_for(a=12.0, b=4.0)
    world.engines["e0"].place = EnginePlace(7, 4, ("b",), Role.MULTIPLEX)
    world.run(60)
    assert world.told == []
    world.ask_for(a=4.0, b=12.0)
    world.until(lambda: world.status().changes_total == 1)
    assert world.daemon.plan.number == 8


def test_what_was_changed_by_hand_after_a_plan_stays_even_for_a_successor():
    world = shifted()
    world.until(lambda: world.status().changes_total == 1)
    world.ask_for(a=1.0, b=1.0)
    world.run(1)
    name = next(name for name, services in world.held().items() if len(services) == 2)
    world.engines[name].services.remove("a")
    world.run(5)
    num_told = len(world.told)
    world.new_daemon()
    world.run(40)
    assert len(world.told) == num_told
    assert world.held()[name] == ["b"]


# --- others that change something -------------------------------------------------------------------------------------
def test_a_plan_by_hand_is_finished_and_then_measured():
    world = World(TWO)
    world.ask_for(a=4.0, b=4.0)
    world.run(5)
    for name, engine in world.engines.items():
        engine.place = EnginePlace(3, 4, ("b",) if name == "e2" else engine.own, Role.MULTIPLEX)
    world.until(lambda: world.status().changes_total == 1)
    assert world.held() == {**TWO, "e2": ["b"]}
    assert world.daemon.memory.settled == 3
    assert world.status().made is None


def test_a_newer_plan_ends_an_older_one_and_is_taken_up():
    world = shifted()
    world.until(lambda: world.daemon.doing is Doing.CHANGING)
    for engine in world.engines.values():
        engine.place = EnginePlace(9, 4, engine.own, Role.MULTIPLEX)
    world.until(lambda: world.is_at_rest)
    assert any("knows of plan 9" in note for note in world.notes)
    world.until(lambda: world.daemon.memory.settled == 9)
    assert world.status().changes_failed_total == 1


def test_a_service_loaded_by_hand_during_a_search_makes_its_answer_worthless():
    world = shifted()
    world.until(lambda: world.daemon.doing is Doing.SEARCHING)
    world.engines["e0"].services.append("b")
    world.until(lambda: world.daemon.doing is not Doing.SEARCHING)
    assert world.status().decision.verdict == "overtaken"
    assert world.told == []


def test_a_role_that_changes_during_a_search_is_that_of_the_plan():
    world = shifted()
    world.until(lambda: world.daemon.doing is Doing.SEARCHING)
    world.engines["e0"].role, world.engines["e0"].num_role_changes = Role.DECODE, 1
    world.until(lambda: world.status().changes_total == 1)
    assert (world.engines["e0"].role, world.engines["e0"].num_role_changes) == (Role.DECODE, 1)


def test_a_service_that_was_taken_away_by_hand_is_not_given_back():
    world = World({"e0": ["a"], "e1": ["a"], "e2": ["b"]})
    world.ask_for(a=4.0, b=1.0)
    world.run(5)
    world.engines["e2"].services.clear()
    world.run(60)
    assert world.told == []


def test_a_successor_knows_which_services_are_to_be_served():
    world = World({"e0": ["a"], "e1": ["a"], "e2": ["b"]})
    world.ask_for(a=4.0, b=1.0)
    world.run(30)
    world.kill("e2", for_s=1000.0)
    world.run(3)
    world.new_daemon()
    world.run(20)
    assert world.served() == {"a", "b"}


@pytest.mark.parametrize("lets_go", ["at once", "later"])
def test_a_service_that_is_no_more_is_in_no_plan(lets_go: str):
    """It is in the plan that engines know, and gateways remember it. An engine that starts again forgets that plan."""
    world = shifted()
    world.until(lambda: world.is_at_rest and world.daemon.plan.number == 1)
    assert all("b" in engine.place.services for engine in world.engines.values() if engine.id != "e0")
    services = tuple(service for service in world.topology.services if service.name == "a")
    world.topology = replace(world.topology, services=services)
    world.told.clear()
    world.asked.clear()
    world.new_daemon()
    world.run(5 if lets_go == "later" else 0)
    for engine in world.engines.values():
        engine.services = ["a"]
    world.kill("e3", for_s=1)
    world.engines["e3"].own = ("a",)
    world.until(lambda: len(world.asked) >= 3)
    assert {name for question in world.asked for name in question.asked.services} == {"a"}
    assert not [order for _, order in world.told if "b" in str(order)]
