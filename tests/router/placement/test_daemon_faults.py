"""Engines that die, restart, have no room or cannot load: what the placement daemon makes of it."""

from mesh.wire.control import EnginePlace, LoadService, Role
from router.placement.daemon import Doing
from router.placement.observe.failures import FORGIVEN_AFTER
from tests.router.placement.daemon_world import LOAD_S, World
from tests.router.placement.shifting import TWO, shifted
from tests.seeds import each_seed


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
