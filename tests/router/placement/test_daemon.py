"""The placement daemon's core, against a mesh that is all arithmetic."""

import pytest

from mesh.rules import PlacementMode
from mesh.wire.control import EnginePlace, LoadService, Role
from router.placement.change.replacement import risk_of
from router.placement.daemon import SEARCH_S, Doing
from router.placement.observe.failures import FORGIVEN_AFTER
from tests.router.placement.daemon_world import LOAD_S, World
from tests.seeds import each_seed

TWO = {"e0": ["a"], "e1": ["a"], "e2": ["a"], "e3": ["b"]}


def shifted(seed: int = 0, **options) -> World:
    """After one decision for what three engines of a and one of b are right for, b is asked for three times as much."""
    world = World(TWO, seed, **options)
    world.ask_for(a=12.0, b=4.0)
    world.until(lambda: world.status().decision is not None)
    world.ask_for(a=4.0, b=12.0)
    return world


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
    assert a.rate == pytest.approx(4.0, rel=0.5)
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


# --- faults -----------------------------------------------------------------------------------------------------------


@each_seed(2, most=8)
def test_an_engine_that_dies_in_the_middle_of_a_change(seed: int):
    world = shifted(seed, loss=0.2)
    world.until(lambda: world.daemon.doing is Doing.CHANGING)
    world.run(world.random.random() * 4)
    victim = world.random.choice(sorted(world.engines))
    world.kill(victim, for_s=world.random.choice([1.5, 5.0, 30.0]))
    world.run(200)
    assert world.served() == {"a", "b"}
    assert world.daemon.doing in (Doing.LISTENING, Doing.SEARCHING)
    assert sum("b" in services for services in world.held().values()) >= 3


def test_an_engine_that_restarts_last_does_not_leave_its_service_to_nobody():
    """It comes back with what the topology gives it, when the others have let go of what it was to serve."""
    world = World({"e0": ["a"], "e1": ["b"]})
    world.ask_for(a=1.0, b=1.0)
    world.run(5)
    world.engines["e0"].place = EnginePlace(1, 2, ("b",), Role.MULTIPLEX)
    world.engines["e1"].place = EnginePlace(1, 2, ("a",), Role.MULTIPLEX)
    world.until(lambda: "a" not in world.engines["e0"].services or "b" not in world.engines["e1"].services)
    world.engines["e0"].restart()
    world.until(lambda: world.status().changes_total == 1)
    assert world.held() == {"e0": ["b"], "e1": ["a"]}


def test_weights_that_cannot_be_had_are_told_and_the_mesh_goes_on():
    world = shifted()
    for engine in world.engines.values():
        engine.is_broken = True
    world.until(lambda: world.status().changes_failed_total == 1)
    assert "its weights are corrupt; what was loaded stays" in world.status().error
    assert world.held() == {name: sorted(services) for name, services in TWO.items()}
    assert world.daemon.memory.interval_s > 30.0, "it waits longer before it tries again"
    for engine in world.engines.values():
        engine.is_broken = False
    world.until(lambda: world.status().changes_total == 1)
    assert world.status().error is None


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


def test_what_leaves_may_take_its_time_and_the_next_decision_does_not_wait_for_it():
    world = World(TWO)
    world.ask_for(a=12.0, b=4.0)
    world.run(5)
    for name, engine in world.engines.items():
        engine.drains_s = 10_000.0
        engine.place = EnginePlace(1, 4, ("b",) if name in ("e0", "e3") else ("a",), Role.MULTIPLEX)
    world.until(lambda: world.status().changes_total == 1, limit_s=10.0)
    assert list(world.engines["e0"].leaving) == ["a"]
    assert world.held()["e0"] == ["b"]
    world.until(lambda: bool(world.asked), limit_s=25.0)
    assert world.asked[0].obstacles.leaving["e0"] == ("a",)
    assert world.asked[0].present.groups[0].services == ("b",)


def test_a_plan_that_engines_have_no_room_for_is_told_and_not_tried():
    world = shifted()
    for engine in world.engines.values():
        engine.weight_memory = 1
    world.until(lambda: world.status().decision.verdict == "obstructed")
    assert "would hold a, b while the plan changes" in world.status().decision.reason
    world.run(100)
    assert world.told == []
    for engine in world.engines.values():
        engine.weight_memory = 2
    world.until(lambda: world.status().changes_total == 1)


def test_what_engines_could_not_load_is_not_asked_of_them_again_for_some_intervals():
    """All of them, not only the one whose failure was heard first."""
    world = shifted()
    for engine in world.engines.values():
        engine.is_broken = True
    world.until(lambda: world.status().changes_failed_total == 1)
    assert world.status().error.startswith("plan 1 was given up: e0 did not load b")
    failed = {(name, LoadService(one.service)) for name, engine in world.engines.items() for one in engine.failed}
    assert {("e0", LoadService("b")), ("e1", LoadService("b"))} <= failed
    world.told.clear()
    interval = world.daemon.memory.interval
    while world.daemon.memory.interval <= interval + FORGIVEN_AFTER:
        world.step()
        assert not failed & set(world.told)
    for engine in world.engines.values():
        engine.is_broken = False
    world.until(lambda: failed & set(world.told), limit_s=1000.0)
    world.until(lambda: any("b" in world.held()[name] for name in ("e0", "e1", "e2")))


def test_a_plan_is_made_for_the_engines_that_have_not_failed():
    world = shifted()
    for name in ("e0", "e1"):
        world.engines[name].is_broken = True
    world.until(lambda: world.status().changes_failed_total == 1)
    world.until(lambda: world.status().changes_total == 1)
    assert world.held() == {"e0": ["a"], "e1": ["a"], "e2": ["b"], "e3": ["b"]}
    assert world.status().changes_failed_total == 1


def test_loads_that_fail_after_their_plan_was_given_up_are_remembered_too():
    world = shifted()
    for engine in world.engines.values():
        engine.is_broken = True
    world.engines["e1"].fails_after_s = 20.0
    world.until(lambda: world.status().changes_failed_total == 1)
    assert "e1" not in world.status().error
    world.until(lambda: world.engines["e1"].failed)
    late = ("e1", world.engines["e1"].failed[0].service)
    assert ("e1", LoadService(late[1])) in world.told
    world.step()
    interval = world.daemon.memory.interval
    assert late in world.daemon._obstacles().failed
    world.told.clear()
    while world.daemon.memory.interval <= interval + FORGIVEN_AFTER:
        assert ("e1", LoadService(late[1])) not in world.told
        world.step()


def test_all_that_could_not_be_loaded_is_told():
    world = World({"e0": ["a"], "e1": ["a"], "e2": ["a"], "e3": ["b"]})
    world.ask_for(a=1.0, b=1.0)
    world.run(5)
    for name, engine in world.engines.items():
        engine.is_broken = True
        engine.place = EnginePlace(1, 4, ("a", "b") if name != "e3" else ("b",), Role.MULTIPLEX)
    world.until(lambda: world.status().changes_failed_total == 1)
    for name in ("e0", "e1", "e2"):
        assert f"{name} did not load b: its weights are corrupt" in world.status().error


def test_a_service_that_lost_its_last_engine_gets_another_one():
    world = World({"e0": ["a"], "e1": ["a"], "e2": ["b"]})
    world.ask_for(a=4.0, b=1.0)
    world.run(30)
    world.kill("e2", for_s=1000.0)
    world.run(20)
    assert world.served() == {"a", "b"}
    assert "plan 1 is to be carried out: no engine serves b" in world.notes


def test_a_service_is_back_as_soon_as_the_engine_that_alone_held_it_is():
    """The engine comes back with what the topology gives it."""
    world = World({"e0": ["a"], "e1": ["a"], "e2": ["b"]})
    world.ask_for(a=4.0, b=1.0)
    world.run(5)
    for name, services in {"e0": ("b",), "e1": ("a",), "e2": ("a",)}.items():
        world.engines[name].place = EnginePlace(1, 3, services, Role.MULTIPLEX)
    world.until(lambda: world.status().changes_total == 1)
    world.kill("e0", for_s=3.0)
    world.run(3.0 + LOAD_S + 2.0)
    assert "b" in world.held()["e0"]
    assert "b" not in world.held()["e2"]


def test_a_successor_knows_which_services_are_to_be_served():
    world = World({"e0": ["a"], "e1": ["a"], "e2": ["b"]})
    world.ask_for(a=4.0, b=1.0)
    world.run(30)
    world.kill("e2", for_s=1000.0)
    world.run(3)
    world.new_daemon()
    world.run(20)
    assert world.served() == {"a", "b"}


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


def test_a_service_that_fits_nowhere_is_told_with_what_is_missing():
    world = World({"e0": ["a"], "e1": ["b"]})
    world.ask_for(a=1.0, b=1.0)
    for gateway in world.gateways:
        gateway._tally = lambda name, count, tally=gateway._tally: _long(tally(name, count))  # type: ignore[method-assign]
    world.until(lambda: world.status().error is not None)
    assert "b: its longest requests take 125.7 % of a device's KV memory" in world.status().error
    assert "25.7 % of a device's KV memory too little" in world.status().error
    assert "\n" not in world.status().error
    assert world.told == []


def _long(tally):
    """Requests of 2000 tokens, where an engine has room for 1600."""
    from msgspec.structs import replace

    return replace(tally, input_tokens=2000 * tally.arrived, input_squares=2000**2 * tally.arrived)


def test_silence_is_no_reason_for_anything():
    world = World(TWO)
    world.run(60)
    assert world.asked == []
    assert world.status().decision.verdict == "idle"
    assert world.status().decision.reason == "nobody asked for anything"
    for engine in world.engines.values():
        engine.dead_until = world.now + 1000
    world.run(60)
    assert world.status().decision.reason == "no engine is ready"


def test_orders_are_repeated_but_not_at_every_turn():
    world = shifted()
    world.until(lambda: world.status().changes_total == 1)
    assert sum(isinstance(order, LoadService) for _, order in world.told) <= 6


@each_seed(2, most=10)
def test_whatever_happens_every_service_is_served_in_the_end(seed: int):
    """Traffic shifts, engines and daemons die, weights are corrupt, searches fail, hands interfere, words are lost."""
    world = World(TWO, seed, loss=0.2)
    draw, engines = world.random, list(world.engines.values())

    def lie_low() -> None:
        world.searches_fail = draw.random() < 0.2
        for engine in engines:
            engine.is_broken = draw.random() < 0.1

    def by_hand() -> None:
        draw.choice(engines).services = ["a", "b"]

    def plan_by_hand() -> None:
        number, first = world.daemon.plan.number + 1, draw.randrange(4)
        for index, engine in enumerate(engines[: draw.choice([2, 4])]):
            services = ("a", "b") if index == first else draw.choice([("a",), ("b",)])
            engine.place = EnginePlace(number, 4, services, Role.MULTIPLEX)

    happenings = (
        lambda: world.ask_for(a=draw.uniform(0, 12), b=draw.uniform(0, 12)),
        lambda: world.kill(draw.choice(engines).id, for_s=draw.choice([1.0, 5.0, 20.0])),
        world.new_daemon,
        lie_low,
        by_hand,
        plan_by_hand,
    )
    for _ in range(25):
        draw.choice(happenings)()
        world.run(draw.uniform(0.0, 15.0))
    world.searches_fail = False
    for engine in engines:
        engine.is_broken = False
    world.run(120)
    assert world.served() == {"a", "b"}
    world.until(lambda: world.daemon.doing is Doing.LISTENING)
