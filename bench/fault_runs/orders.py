"""What people do during a run: they migrate, drain, change roles, services and policies, restart, and leave."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mesh.wire import control
from mesh.wire.control import PolicyChoice, Role, SetRole
from mesh.wire.messages import EngineMessage
from simulation.cluster import Simulation
from simulation.faults.processes import Processes

UNREAD_BYTES = 2**20
LOAD_S = 0.4  # for weights to come


@dataclass(frozen=True, slots=True)
class Order:
    """``whom``: an engine or a gateway. ``what`` becomes of it: a role, a service, a policy, or where a request goes.

    ``pick`` (0 to 1) says which request is meant. The order is undone ``for_s`` later, and is over after ``end_s``.
    """

    at_s: float
    kind: str
    whom: str = ""
    what: str | PolicyChoice = ""
    pick: float = 0.0
    for_s: float = 0.0

    @property
    def end_s(self) -> float:
        return self.at_s + self.for_s + (LOAD_S if self.kind == "shed" else 0.0)

    def give(self, simulation: Simulation) -> None:
        GIVE[self.kind](self, simulation)


def _move(order: Order, simulation: Simulation) -> None:
    """``mesh migrate``: one of the requests that the engine holds."""
    engine = simulation.engines.get(order.whom)
    request = None if engine is None else _pick(sorted(engine.core._requests), order.pick)
    if request is not None:
        _command(simulation, order.whom, control.Migrate(request, str(order.what), "by hand"))


def _drain(order: Order, simulation: Simulation) -> None:
    """``mesh drain``, and ``--undo`` later."""
    _command(simulation, order.whom, control.Drain())
    simulation.kernel.after(order.for_s, _command, simulation, order.whom, control.Drain(undo=True))


def _take_role(order: Order, simulation: Simulation) -> None:
    """``mesh role``."""
    engine = simulation.engines.get(order.whom)
    if engine is not None:
        role = Role(str(order.what))
        _command(simulation, order.whom, SetRole(role, engine.core._standing.num_role_changes))


def _shed(order: Order, simulation: Simulation) -> None:
    """``mesh unload``, and ``mesh load`` later."""
    _command(simulation, order.whom, control.UnloadService(str(order.what)))
    simulation.kernel.after(order.for_s, _load, order, simulation)


def _load(order: Order, simulation: Simulation) -> None:
    """Again until the engine has the service, in case it cannot load it, or has still to hear that it is to unload."""
    engine, service = simulation.engines.get(order.whom), str(order.what)
    is_held_up = _processes(simulation).engines[order.whom].is_held_up
    held = None if engine is None else engine.core._services.get(service)
    if engine is not None and (is_held_up or held is None or held.is_leaving):
        _command(simulation, order.whom, control.LoadService(service))
        simulation.kernel.after(LOAD_S, _load, order, simulation)


def _retire(order: Order, simulation: Simulation) -> None:
    """SIGTERM: the engine ends when it is empty, and is started again."""
    _processes(simulation).engines[order.whom].retire(order.for_s)


def _retire_gateway(order: Order, simulation: Simulation) -> None:
    """SIGTERM: the gateway takes nothing new, ends when its requests have ended, and is started again."""
    _processes(simulation).gateways[order.whom].retire(order.for_s)


def _leave(order: Order, simulation: Simulation) -> None:
    """A client goes away."""
    if (request := _pick(sorted(simulation.open), order.pick)) is not None:
        simulation.leave(request)


def _fall_behind(order: Order, simulation: Simulation) -> None:
    """A client reads so slowly that its gateway cuts it off."""
    if (request := _pick(sorted(simulation.open), order.pick)) is not None:
        simulation.fall_behind(request, UNREAD_BYTES)


def _switch_policy(order: Order, simulation: Simulation) -> None:
    """``mesh policy``: told to one gateway; the others hear of it from its statuses."""
    assert isinstance(order.what, PolicyChoice), "there is a policy to switch to"
    _processes(simulation).gateways[order.whom].order(control.SetPolicy(order.what))


GIVE: Mapping[str, Callable[[Order, Simulation], None]] = {
    "move": _move,
    "drain": _drain,
    "role": _take_role,
    "retire": _retire,
    "leave": _leave,
    "shed": _shed,
    "policy": _switch_policy,
    "behind": _fall_behind,
    "retire_gateway": _retire_gateway,
}


def _pick(requests: Sequence[str], pick: float) -> str | None:
    return requests[int(pick * len(requests))] if requests else None


def _command(simulation: Simulation, engine: str, command: EngineMessage) -> None:
    _processes(simulation).engines[engine].order(command)


def _processes(simulation: Simulation) -> Processes:
    assert simulation.processes is not None, "orders are given where things can go wrong"
    return simulation.processes
