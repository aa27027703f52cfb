"""What people do during a run: they migrate, drain, change roles, services and policies, restart, and leave."""

from collections.abc import Sequence
from dataclasses import dataclass

from mesh.wire import control
from mesh.wire.control import PolicyChoice, Role, SetRole
from mesh.wire.messages import EngineMessage
from simulation.cluster import Simulation
from simulation.faults.processes import Processes

UNREAD_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Move:
    """``mesh migrate``: one of the requests that ``source`` holds, whichever ``pick`` (0 to 1) says."""

    at_s: float
    source: str
    pick: float
    to: str

    @property
    def end_s(self) -> float:
        return self.at_s

    def give(self, simulation: Simulation) -> None:
        engine = simulation.engines.get(self.source)
        request = None if engine is None else _pick(sorted(engine.core._requests), self.pick)
        if request is not None:
            _order(simulation, self.source, control.Migrate(request, self.to, "by hand"))


@dataclass(frozen=True, slots=True)
class Drain:
    """``mesh drain``, and ``--undo`` later."""

    at_s: float
    engine: str
    undo_after_s: float

    @property
    def end_s(self) -> float:
        return self.at_s + self.undo_after_s

    def give(self, simulation: Simulation) -> None:
        _order(simulation, self.engine, control.Drain())
        undo = control.Drain(undo=True)
        simulation.kernel.after(self.undo_after_s, _order, simulation, self.engine, undo)


@dataclass(frozen=True, slots=True)
class TakeRole:
    """``mesh role``."""

    at_s: float
    engine: str
    role: Role

    @property
    def end_s(self) -> float:
        return self.at_s

    def give(self, simulation: Simulation) -> None:
        engine = simulation.engines.get(self.engine)
        if engine is not None:
            _order(simulation, self.engine, SetRole(self.role, engine.core._standing.num_role_changes))


@dataclass(frozen=True, slots=True)
class Shed:
    """``mesh unload``, and ``mesh load`` later: said again until the engine has the service, in case it cannot load it.

    ``load_s`` is what loading takes.
    """

    at_s: float
    engine: str
    service: str
    back_after_s: float
    load_s: float

    @property
    def end_s(self) -> float:
        return self.at_s + self.back_after_s + self.load_s

    def give(self, simulation: Simulation) -> None:
        _order(simulation, self.engine, control.UnloadService(self.service))
        simulation.kernel.after(self.back_after_s, self._load, simulation)

    def _load(self, simulation: Simulation) -> None:
        """An engine that is held up may still have to hear that it is to unload."""
        engine, is_held_up = simulation.engines.get(self.engine), _processes(simulation).engines[self.engine].is_held_up
        service = None if engine is None else engine.core._services.get(self.service)
        if engine is not None and (is_held_up or service is None or service.is_leaving):
            _order(simulation, self.engine, control.LoadService(self.service))
            simulation.kernel.after(self.load_s, self._load, simulation)


@dataclass(frozen=True, slots=True)
class Retire:
    """SIGTERM: the engine ends when it is empty, and is started again."""

    at_s: float
    engine: str
    restart_after_s: float

    @property
    def end_s(self) -> float:
        return self.at_s + self.restart_after_s

    def give(self, simulation: Simulation) -> None:
        _processes(simulation).engines[self.engine].retire(self.restart_after_s)


@dataclass(frozen=True, slots=True)
class Leave:
    """A client goes away."""

    at_s: float
    pick: float

    @property
    def end_s(self) -> float:
        return self.at_s

    def give(self, simulation: Simulation) -> None:
        request = _pick(sorted(simulation.open), self.pick)
        if request is not None:
            simulation.leave(request)


@dataclass(frozen=True, slots=True)
class FallBehind:
    """A client reads so slowly that its gateway cuts it off."""

    at_s: float
    pick: float

    @property
    def end_s(self) -> float:
        return self.at_s

    def give(self, simulation: Simulation) -> None:
        request = _pick(sorted(simulation.open), self.pick)
        if request is not None:
            simulation.fall_behind(request, UNREAD_BYTES)


@dataclass(frozen=True, slots=True)
class SwitchPolicy:
    """``mesh policy``: told to one gateway; the others hear of it from its statuses."""

    at_s: float
    gateway: str
    choice: PolicyChoice

    @property
    def end_s(self) -> float:
        return self.at_s

    def give(self, simulation: Simulation) -> None:
        _processes(simulation).gateways[self.gateway].order(control.SetPolicy(self.choice))


@dataclass(frozen=True, slots=True)
class RetireGateway:
    """SIGTERM: the gateway takes nothing new, ends when its requests have ended, and is started again."""

    at_s: float
    gateway: str
    restart_after_s: float

    @property
    def end_s(self) -> float:
        return self.at_s + self.restart_after_s

    def give(self, simulation: Simulation) -> None:
        _processes(simulation).gateways[self.gateway].retire(self.restart_after_s)


Order = Move | Drain | TakeRole | Shed | Retire | Leave | FallBehind | SwitchPolicy | RetireGateway


def _pick(requests: Sequence[str], pick: float) -> str | None:
    return requests[int(pick * len(requests))] if requests else None


def _order(simulation: Simulation, engine: str, command: EngineMessage) -> None:
    _processes(simulation).engines[engine].order(command)


def _processes(simulation: Simulation) -> Processes:
    assert simulation.processes is not None, "orders are given where things can go wrong"
    return simulation.processes
