"""What people do during a run: they migrate, drain, change roles, services and policies, restart, and leave."""

from collections.abc import Iterable
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
        return self.at_s + self.for_s + (LOAD_S if self.kind in ("shed", "pause") else 0.0)

    def give(self, simulation: Simulation) -> None:
        engine = simulation.engines.get(self.whom)
        match self.kind, self.what:
            case "move", str(to):  # ``mesh migrate``
                for request in self._picked(() if engine is None else engine.core._requests):
                    self._command(simulation, control.Migrate(request, to, "by hand"))
            case "drain", _:  # ``mesh drain``, and ``--undo`` later
                self._command(simulation, control.Drain())
                simulation.kernel.after(self.for_s, self._command, simulation, control.Drain(undo=True))
            case "role", str(role):  # ``mesh role``
                if engine is not None:
                    self._command(simulation, SetRole(Role(role), engine.core._standing.num_role_changes))
            case (
                ("shed" | "pause"),
                str(service),
            ):  # ``mesh unload``, with ``--pause`` or without; later ``mesh load``
                self._command(simulation, control.UnloadService(service, pauses=self.kind == "pause"))
                simulation.kernel.after(self.for_s, self._load, simulation, service)
            case _:
                self._tell_another(simulation)

    def _tell_another(self, simulation: Simulation) -> None:
        """What is not said to an engine by a message."""
        processes = _processes(simulation)
        match self.kind, self.what:
            case "retire", _:  # SIGTERM: the engine ends when it is empty, and is started again
                processes.engines[self.whom].retire(self.for_s)
            case "retire_gateway", _:  # SIGTERM: it takes nothing new, ends with its requests, and is started again
                processes.gateways[self.whom].retire(self.for_s)
            case "policy", PolicyChoice() as choice:  # ``mesh policy``: told to one gateway; the others hear of it
                processes.gateways[self.whom].order(control.SetPolicy(choice))
            case "leave", _:  # a client goes away
                for request in self._picked(simulation.open):
                    simulation.leave(request)
            case "behind", _:  # a client reads so slowly that its gateway cuts it off
                for request in self._picked(simulation.open):
                    simulation.fall_behind(request, UNREAD_BYTES)

    def _load(self, simulation: Simulation, service: str) -> None:
        """Again until the engine has it, in case it cannot load it, or has still to hear that it is to unload."""
        engine = simulation.engines.get(self.whom)
        is_held_up = _processes(simulation).engines[self.whom].is_held_up
        held = None if engine is None else engine.core._services.get(service)
        if engine is not None and (is_held_up or held is None or held.is_leaving):
            self._command(simulation, control.LoadService(service))
            simulation.kernel.after(LOAD_S, self._load, simulation, service)

    def _picked(self, requests: Iterable[str]) -> list[str]:
        """One of them, if there is any."""
        found = sorted(requests)
        return [found[int(self.pick * len(found))]] if found else []

    def _command(self, simulation: Simulation, command: EngineMessage) -> None:
        _processes(simulation).engines[self.whom].order(command)


def _processes(simulation: Simulation) -> Processes:
    assert simulation.processes is not None, "orders are given where things can go wrong"
    return simulation.processes
