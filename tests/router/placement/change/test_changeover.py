"""Plans are carried out on engines that run, whatever is lost and whoever dies, and no request notices."""

import random
from collections.abc import Mapping

import pytest

from mesh.wire.control import Announce, EnginePlace, Role, UsualLengths
from mesh.wire.requests import Refused
from mesh.wire.status import EngineStatus
from router.placement.change.changeover import Changeover, Patience, Stage, announced, is_in_force
from tests.engines.conftest import make_spec as make_spec  # a fixture
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import OTHER, SERVICE, continuation
from tests.seeds import each_seed

PATIENCE = Patience(repeat_s=0.1, silent_s=5.0, plan_s=100.0)
DAEMON = "placement"


def swap(number: int = 1) -> dict[str, EnginePlace]:
    """What ``a`` serves goes to ``b``, and the reverse."""
    return {
        "a": EnginePlace(number, 2, (OTHER,), Role.MULTIPLEX),
        "b": EnginePlace(number, 2, (SERVICE,), Role.DECODE),
    }


class World:
    """A virtual mesh, and a daemon that hears every status."""

    def __init__(self, seed: int, loss: float = 0.0) -> None:
        self.draw = random.Random(seed)
        self.mesh = VirtualMesh(seed)
        self.loss = loss
        self.mesh.add("a", services=(SERVICE,), max_running=16)
        self.mesh.add("b", services=(OTHER,), max_running=16)

    def statuses(self) -> Mapping[str, EngineStatus]:
        alive = {name: engine for name, engine in self.mesh.engines.items() if not engine.dead}
        return {name: engine.core.status(self.mesh.now) for name, engine in alive.items()}

    def turn(self, change: Changeover | None) -> None:
        """Everybody hears everybody, the daemon orders, and something happens."""
        statuses = self.statuses()
        for name in statuses:
            for other, status in statuses.items():
                if other != name and self.mesh.engines[name].core.observe(other, status, self.mesh.now):
                    self.mesh.perform(name, self.mesh.engines[name].core.look(self.mesh.now))
        for engine, order in change.orders(statuses, self.mesh.now) if change is not None else ():
            if self.draw.random() >= self.loss:
                self.mesh.deliver(DAEMON, engine, order)
        for _ in range(self.draw.randint(1, 5)):
            self.mesh.step()
        self.mesh.now += 0.02

    def carry_out(self, change: Changeover) -> None:
        for _ in range(3000):
            if change.is_over:
                return
            self.turn(change)
        raise AssertionError(f"not over: {change}")

    def placement(self) -> dict[str, tuple[set[str], Role]]:
        return {name: ({one.name for one in s.services}, s.role) for name, s in self.statuses().items()}


BROKEN = {"a": OTHER, "b": SERVICE}.items()
SWAPPED = {"a": ({OTHER}, Role.MULTIPLEX), "b": ({SERVICE}, Role.DECODE)}


@each_seed(4, most=20)
def test_a_plan_is_carried_out_while_requests_run(make_spec, seed: int):
    world = World(seed, loss=0.3)
    specs = [make_spec(f"r{i}", 5, 120, first=100 * i, service=(SERVICE, OTHER)[i % 2]) for i in range(4)]
    for number, spec in enumerate(specs):
        world.mesh.submit("ab"[number % 2], spec)
    change = Changeover(1, swap(), PATIENCE, world.mesh.now)
    world.carry_out(change)
    assert (change.stage, change.reason) == (Stage.DONE, "")
    assert world.placement() == SWAPPED
    world.mesh.settle()
    assert {spec.id: world.mesh.streams[spec.id] for spec in specs} == {
        spec.id: continuation(spec.prompt, 120) for spec in specs
    }
    assert not any(isinstance(answer, Refused) for answer in world.mesh.answers)
    assert all(world.mesh.finished_under[spec.id].hop == 1 for spec in specs), "each moved once"


@each_seed(range(20))
def test_every_service_is_served_by_somebody_at_every_moment(seed: int):
    world = World(seed, loss=0.3)
    change = Changeover(1, swap(), PATIENCE, world.mesh.now)
    while not change.is_over:
        world.turn(change)
        serving = [one.name for s in world.statuses().values() for one in s.services if not one.is_leaving]
        assert set(serving) == {SERVICE, OTHER}


@pytest.mark.parametrize("turns", range(0, 40, 2))
def test_a_daemon_that_dies_halfway_is_followed_by_one_that_finishes_or_forgets(turns: int):
    world = World(turns, loss=0.2)
    first = Changeover(7, swap(7), PATIENCE, world.mesh.now)
    for _ in range(turns):
        world.turn(first)
    known = announced(world.statuses())
    if not known:
        assert world.placement() == {"a": ({SERVICE}, Role.MULTIPLEX), "b": ({OTHER}, Role.MULTIPLEX)}
        return
    assert known == swap(7)
    world.carry_out(Changeover(7, known, PATIENCE, world.mesh.now))
    assert world.placement() == SWAPPED


def test_a_plan_for_an_engine_that_vanished_is_given_up_and_serving_goes_on(make_spec):
    world = World(0)
    world.mesh.submit("a", make_spec("r", 5, 300))
    change = Changeover(1, swap(), PATIENCE, world.mesh.now)
    while change.stage is not Stage.LOADING:
        world.turn(change)
    world.mesh.kill("b")
    world.carry_out(change)
    assert (change.stage, change.reason) == (Stage.FAILED, "b is gone")
    assert SERVICE in world.placement()["a"][0]
    world.mesh.settle()
    assert world.mesh.finished == {"r": "length"}


def test_weights_that_cannot_be_had_end_the_plan_before_anything_leaves(monkeypatch):
    world = World(0)

    def failing(name: str, service: str):
        core = world.mesh.engines[name].core
        return lambda: world.mesh.perform(name, core.not_loaded(service, "its weights are corrupt", world.mesh.now))

    monkeypatch.setattr(world.mesh, "_loading", failing)
    change = Changeover(1, swap(), PATIENCE, world.mesh.now)
    world.carry_out(change)
    assert change.stage is Stage.FAILED
    failures = {f"{engine} did not load {service}: its weights are corrupt" for engine, service in BROKEN}
    assert set(change.reason.split("; ")) == failures
    assert world.placement() == {"a": ({SERVICE}, Role.MULTIPLEX), "b": ({OTHER}, Role.MULTIPLEX)}


def test_a_newer_plan_ends_an_older_one():
    world = World(0)
    world.mesh.deliver(DAEMON, "a", Announce(swap(9)["a"]))
    change = Changeover(3, swap(3), PATIENCE, world.mesh.now)
    world.carry_out(change)
    assert (change.stage, change.reason) == (Stage.FAILED, "a knows of plan 9")


def test_a_plan_that_is_there_already_changes_nothing():
    world = World(0)
    places = {"a": EnginePlace(1, 2, (SERVICE,), Role.MULTIPLEX), "b": EnginePlace(1, 2, (OTHER,), Role.MULTIPLEX)}
    change = Changeover(1, places, PATIENCE, world.mesh.now)
    assert {type(order) for _, order in change.orders(world.statuses(), 0.0)} == {Announce}
    world.carry_out(change)
    assert change.stage is Stage.DONE


def test_engines_are_told_of_requests_of_their_own_services():
    lengths = [UsualLengths(SERVICE, 300, 200), UsualLengths(OTHER, 30, 20)]
    orders = Changeover(1, swap(), PATIENCE, 0.0, lengths=lengths).orders(World(0).statuses(), 0.0)
    assert {engine: order.lengths for engine, order in orders} == {"a": (lengths[1],), "b": (lengths[0],)}


def test_orders_are_repeated_but_not_at_once():
    world = World(0)
    change = Changeover(1, swap(), PATIENCE, 0.0)
    statuses = world.statuses()
    assert len(change.orders(statuses, 0.0)) == 2
    assert change.orders(statuses, 0.05) == []
    assert len(change.orders(statuses, 0.11)) == 2


def gather(number: int = 1) -> dict[str, EnginePlace]:
    """Both serve what ``a`` serves; nobody is to serve what ``b`` does."""
    return {name: EnginePlace(number, 2, (SERVICE,), Role.MULTIPLEX) for name in ("a", "b")}


def test_a_service_that_the_plan_knows_nothing_of_stays(make_spec):
    world = World(0)
    world.mesh.submit("b", make_spec("r", 5, 300, service=OTHER))
    world.carry_out(Changeover(1, gather(), PATIENCE, world.mesh.now))
    assert world.placement() == {"a": ({SERVICE}, Role.MULTIPLEX), "b": ({SERVICE, OTHER}, Role.MULTIPLEX)}
    assert is_in_force(gather(), world.statuses())
    world.mesh.settle()
    assert world.mesh.finished == {"r": "length"}


def test_a_service_goes_that_nobody_is_to_serve():
    world = World(0)
    world.carry_out(Changeover(1, gather(), PATIENCE, world.mesh.now, drops=(OTHER,)))
    assert world.placement() == dict.fromkeys("ab", ({SERVICE}, Role.MULTIPLEX))
