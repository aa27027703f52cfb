"""Engines that hold one service at a time change what they hold: who gives way when, and what becomes of requests."""

import random
from collections.abc import Sequence

import pytest

from mesh.wire.control import EnginePlace, Role, UnloadService
from mesh.wire.requests import Refused
from router.placement.change.changeover import Changeover, Stage, announced
from router.placement.change.swaps import next_swaps
from tests.engines.conftest import make_spec as make_spec  # a fixture
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import OTHER, SERVICE, continuation
from tests.router.placement.change.test_changeover import PATIENCE, SWAPPED, World, swap
from tests.seeds import each_seed


def begun(waiting: dict[str, str], serving: dict[str, str], *, under_way: dict[str, str] | None = None) -> list[str]:
    """Services are letters."""
    return next_swaps(waiting, under_way or {}, serving, {}, may_interrupt=True)


def test_an_engine_swaps_where_others_serve_what_leaves():
    assert begun({"e0": "a"}, {"a": ["e0", "e1"]}) == ["e0"]
    assert begun({"e0": "a", "e2": "b"}, {"a": ["e0", "e1"], "b": ["e2", "e3"]}) == ["e0", "e2"]


def test_engines_of_a_service_swap_one_after_the_other():
    three = {"a": ["e0", "e1", "e2"]}
    assert begun({"e0": "a", "e1": "a"}, three) == ["e0"]
    assert begun({"e1": "a"}, three, under_way={"e0": "a"}) == []


def test_a_service_is_interrupted_only_if_nothing_else_helps():
    serving = {"a": ["e0"], "b": ["e1", "e2"]}
    assert begun({"e0": "a", "e1": "b"}, serving) == ["e1"], "a waits"
    assert begun({"e0": "a"}, serving, under_way={"e1": "b"}) == []
    assert begun({"e0": "a"}, serving) == ["e0"]
    assert next_swaps({"e0": "a"}, {}, serving, {}, may_interrupt=False) == []


def test_a_circle_is_broken_where_it_harms_least():
    serving = {"a": ["e0"], "b": ["e1"], "c": ["e1"]}
    assert begun({"e0": "a", "e1": "bc"}, serving) == ["e0"], "one service instead of two"
    one_each = {"a": ["e0"], "b": ["e1"]}
    assert next_swaps({"e0": "a", "e1": "b"}, {}, one_each, {"e0": 5, "e1": 2}, may_interrupt=True) == ["e1"]


# --- on engines that run ----------------------------------------------------------------------------------------------


class SmallWorld(World):
    """Engines hold the weights of one service; services are theirs in that order."""

    def __init__(self, seed: int, loss: float = 0.0, held: Sequence[str] = (SERVICE, OTHER)) -> None:
        super().__init__(seed, loss)
        self.mesh = VirtualMesh(seed)
        for name, service in zip("abcd", held, strict=False):
            self.mesh.add(name, services=(service,), max_running=16, weight_memory=1, staging_memory=1)

    def turn(self, change: Changeover | None) -> None:
        super().turn(change)
        for engine in self.mesh.engines.values():
            held = engine.core.residency.services.keys() - engine.weightless
            assert engine.dead or len(held) <= engine.weight_memory, "more weights than fit"


def requests(world: World, make_spec, num_tokens: int = 120) -> dict[str, list[int]]:
    """Two of each service, which decode, and what they should say."""
    engine_of = {SERVICE: "a", OTHER: "b"}
    specs = [make_spec(f"r{i}", 5, num_tokens, first=100 * i, service=(SERVICE, OTHER)[i % 2]) for i in range(4)]
    for spec in specs:
        world.mesh.submit(engine_of[spec.service], spec)
    while any(len(world.mesh.streams[spec.id]) < 3 for spec in specs):
        world.turn(None)
    return {spec.id: continuation(spec.prompt, num_tokens) for spec in specs}


def end_of(world: World) -> None:
    """Until all that waits for another engine has moved and ended."""
    while any(not engine.dead and not engine.core.is_idle for engine in world.mesh.engines.values()):
        world.turn(None)
    world.mesh.settle()


@each_seed(4, most=30)
def test_two_engines_swap_their_services_while_requests_run(make_spec, seed: int):
    world = SmallWorld(seed, loss=0.3)
    said = requests(world, make_spec)
    change = Changeover(1, swap(), PATIENCE, world.mesh.now)
    world.carry_out(change)
    assert (change.stage, change.reason) == (Stage.DONE, "")
    end_of(world)
    assert world.placement() == SWAPPED
    assert world.mesh.streams == said
    assert not any(isinstance(answer, Refused) for answer in world.mesh.answers)


@each_seed(4, most=20)
def test_no_service_is_interrupted_where_another_engine_can_serve_it(seed: int):
    world = SmallWorld(seed, loss=0.3, held=(SERVICE, SERVICE, OTHER))
    places = {
        "a": EnginePlace(1, 3, (OTHER,), Role.MULTIPLEX),
        "b": EnginePlace(1, 3, (SERVICE,), Role.MULTIPLEX),
        "c": EnginePlace(1, 3, (SERVICE,), Role.MULTIPLEX),
    }
    change = Changeover(1, places, PATIENCE, world.mesh.now)
    while not change.is_over:
        world.turn(change)
        serving = [one.name for s in world.statuses().values() for one in s.services if not one.is_leaving]
        assert set(serving) == {SERVICE, OTHER}
    assert change.stage is Stage.DONE


@pytest.mark.parametrize("turns", range(0, 60, 3))
def test_a_daemon_that_dies_in_a_swap_is_followed_by_one_that_finishes_it(make_spec, turns: int):
    world = SmallWorld(turns, loss=0.2)
    said = requests(world, make_spec)
    first = Changeover(7, swap(7), PATIENCE, world.mesh.now)
    for _ in range(turns):
        world.turn(first)
    if known := announced(world.statuses()):
        second = Changeover(7, known, PATIENCE, world.mesh.now)
        world.carry_out(second)
        assert second.stage is Stage.DONE
        end_of(world)
        assert world.placement() == SWAPPED
    end_of(world)
    assert {name: world.mesh.streams[name] for name in said if name in world.mesh.finished} == said


def test_a_service_that_no_engine_has_is_staged_as_nobody_knows_its_size():
    world = SmallWorld(0, held=(SERVICE, SERVICE))
    places = {
        "a": EnginePlace(1, 2, (OTHER,), Role.MULTIPLEX),
        "b": EnginePlace(1, 2, (SERVICE,), Role.MULTIPLEX),
    }
    change = Changeover(1, places, PATIENCE, world.mesh.now)
    world.carry_out(change)
    assert (change.stage, change.reason) == (Stage.DONE, "")
    assert {name: services for name, (services, _) in world.placement().items()} == {"a": {OTHER}, "b": {SERVICE}}


def test_an_engine_that_stages_nothing_is_told_to_load_and_says_why_it_cannot():
    world = SmallWorld(0)
    for engine in world.mesh.engines.values():
        object.__setattr__(engine.core._settings, "staging_memory_bytes", 0)
    change = Changeover(1, swap(), PATIENCE, world.mesh.now)
    world.carry_out(change)
    assert change.stage is Stage.FAILED
    assert "did not load other: no room for its weights" in change.reason
    assert {name: services for name, (services, _) in world.placement().items()} == {"a": {SERVICE}, "b": {OTHER}}


def test_weights_that_cannot_be_staged_end_the_plan_before_anything_gives_way(make_spec):
    world = SmallWorld(0)
    said = requests(world, make_spec)
    change = Changeover(1, swap(), PATIENCE, world.mesh.now)
    mesh, staging = world.mesh, world.mesh._staging

    def fail(name, service):
        core = mesh.engines[name].core
        return (
            staging(name, service)
            if name == "b"
            else lambda: mesh.perform(name, core.not_staged(service, "its file is damaged", mesh.now))
        )

    mesh._staging = fail
    world.carry_out(change)
    assert (change.stage, change.reason) == (Stage.FAILED, f"a did not load {OTHER}: its file is damaged")
    mesh.settle()
    assert mesh.streams == said


@each_seed(range(10))
def test_a_load_that_fails_in_a_swap_brings_back_what_gave_way(make_spec, seed: int):
    """The second of two engines that swap cannot load what the first one gave up."""
    world = SmallWorld(seed)
    said = requests(world, make_spec)
    broken, mesh = random.Random(seed).choice("ab"), world.mesh
    lost = {"a": OTHER, "b": SERVICE}[broken]
    loading = mesh._loading

    def fail(name, service):
        if (name, service) != (broken, lost):
            return loading(name, service)
        return lambda: mesh.perform(name, mesh.engines[name].core.not_loaded(service, "it is damaged", mesh.now))

    mesh._loading = fail
    change = Changeover(1, swap(), PATIENCE, mesh.now)
    world.carry_out(change)
    assert change.stage is Stage.FAILED
    assert change.reason.startswith(f"{broken} did not load {lost}: it is damaged")
    end_of(world)
    assert {name: services for name, (services, _) in world.placement().items()} == {"a": {SERVICE}, "b": {OTHER}}
    assert mesh.streams == said


def test_an_engine_that_dies_in_a_swap_takes_nothing_else_along(make_spec):
    world = SmallWorld(1)
    requests(world, make_spec)
    change = Changeover(1, swap(), PATIENCE, world.mesh.now)
    while not any(isinstance(order, UnloadService) for _, order in change._ordered_at):
        world.turn(change)
    [swapping] = change._swapping
    other = "b" if swapping == "a" else "a"
    world.mesh.kill(other)
    world.carry_out(change)
    assert change.stage is Stage.FAILED
    assert change.reason.startswith(f"{other} is gone")
    [(held, _)] = world.placement().values()
    assert held, "the engine that lives serves something"
