"""Processes that are killed, started again, and held up: what surrounds a process when things go wrong."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from mesh.topology.schema import Topology
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineMessage, GatewayMessage
from mesh.wire.status import SupervisorStatus
from simulation.engines.engine import SimulatedEngine
from simulation.faults.faulty_network import FaultyNetwork
from simulation.faults.incarnation_kernel import IncarnationKernel
from simulation.gateway import SimulatedGateway
from simulation.kernel import Action, Kernel
from simulation.placement.daemon import HEARD, SimulatedPlacement

RESTART_AFTER_S = 1.0  # of a process that crashed, by its supervisor
COMMAND = "mesh"  # who sends what a person orders: a process without a lease

P = TypeVar("P")


class Incarnations(ABC, Generic[P]):
    """One process over its incarnations. ``on_change`` hears of each new one, and None when there is none."""

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        network: FaultyNetwork,
        topology: Topology,
        on_change: Callable[[str, P | None], None],
        *,
        is_born: bool = True,
    ) -> None:
        self._name = name
        self._kernel = kernel
        self._network = network
        self._timing = topology.timing
        self._on_change = on_change
        self._number = 0
        self.on_death: Callable[[Sender], None] = _nobody_notices
        self._process: P | None = None
        self._own_kernel = IncarnationKernel(kernel)
        if is_born:
            self._be_born(self._own_kernel)
        else:
            network.go_down(name)

    @property
    def is_alive(self) -> bool:
        return self._process is not None

    @property
    def num_incarnations(self) -> int:
        """The number of incarnations so far."""
        return self._number

    @property
    def is_held_up(self) -> bool:
        return self._own_kernel.is_held_up

    def kill(self) -> None:
        """All that it holds is gone."""
        assert self._process is not None, f"{self._name} is dead already"
        self._own_kernel.end()
        self._process = None
        self._network.go_down(self._name)
        self._on_change(self._name, None)
        self.on_death(Sender(self._name, self._number))

    def restart(self) -> None:
        """A new incarnation, which knows nothing of the last one."""
        assert self._process is None, f"{self._name} is alive"
        last, self._own_kernel = self._own_kernel, IncarnationKernel(self._kernel)
        self._own_kernel.skew(last.now - self._kernel.now)
        self._start(self._be_born(self._own_kernel), self._own_kernel)

    def hang(self, for_s: float) -> None:
        """It is held up: what happens to it waits."""
        assert self._process is not None, f"{self._name} is dead"
        self._own_kernel.freeze(for_s)

    def happen(self, action: Action, *arguments: Any) -> None:
        """Something befalls it from outside: now, when it goes on, or not at all if it dies before."""
        self._own_kernel.happen(action, *arguments)

    def _be_born(self, kernel: IncarnationKernel) -> P:
        self._number += 1
        me = Sender(self._name, self._number)
        self._process = process = self._make(me, kernel)
        self._on_change(self._name, process)
        self._network.come_up(me)
        return process

    @abstractmethod
    def _make(self, me: Sender, kernel: IncarnationKernel) -> P:
        """A new process, connected."""

    @abstractmethod
    def _start(self, process: P, kernel: IncarnationKernel) -> None:
        """Start the incarnation: it is up."""


class EngineIncarnations(Incarnations[SimulatedEngine]):
    """An engine over its incarnations. ``make`` makes an incarnation of the engine."""

    def __init__(
        self,
        name: str,
        make: Callable[[Sender, Kernel, float], SimulatedEngine],
        kernel: Kernel,
        network: FaultyNetwork,
        topology: Topology,
        on_change: Callable[[str, SimulatedEngine | None], None],
        *,
        is_born: bool = True,
    ) -> None:
        self._make_engine = make
        self._then: Callable[[], None] = _ignore  # once it has left
        self._is_at_rest = False  # it is not to run: whoever would start it again after a death does not
        self._starts = kernel.random(f"starts of {name}")
        self._factors: list[float] = []
        self._load_failures: list[float] = []
        self._step_failures = 0.0
        super().__init__(name, kernel, network, topology, on_change, is_born=is_born)

    def skew(self, ahead_s: float) -> None:
        self._own_kernel.skew(ahead_s)

    def slow_down(self, factor: float) -> None:
        """Let its steps take so many times as long, from the next one on; of several factors, the largest counts."""
        self._factors.append(factor)
        self._set_pace()

    def recover(self, factor: float) -> None:
        """Undo one `slow_down`."""
        self._factors.remove(factor)
        self._set_pace()

    def fail_loads(self, probability: float) -> None:
        """Let loads fail; of several probabilities, the largest counts."""
        self._load_failures.append(probability)
        self._set_load_failures()

    def mend_loads(self, probability: float) -> None:
        """Undo one `fail_loads`."""
        self._load_failures.remove(probability)
        self._set_load_failures()

    def fail_steps(self, probability: float) -> None:
        """Each of its steps fails with that probability, in whatever incarnation."""
        self._step_failures = probability
        if self._process is not None:
            self._process.failures.step_part = probability

    def stall(self, for_s: float) -> None:
        """Let its next step take so much longer, if it lives."""
        if self._process is not None:
            self._process.failures.stall_s += for_s

    def order(self, command: EngineMessage) -> None:
        """A person's command, if somebody is there to take it."""
        if self._process is not None:
            self._own_kernel.happen(self._process.receive, Sender(COMMAND, 1), command)

    def retire(self, restart_after_s: float) -> None:
        """It is asked to stop (SIGTERM): it ends when it is empty, and is started again some time later."""
        if not self._is_at_rest:
            self.leave(lambda: self._kernel.after(restart_after_s, self._restart_if_dead))

    def leave(self, then: Callable[[], None]) -> None:
        """It is asked to stop (SIGTERM), and ends when it is empty."""
        if self._process is not None:
            self._then = then
            self._own_kernel.happen(self._process.drain)

    def stand_by(self, then: Callable[[], None]) -> None:
        """It ends when it is empty, or dies before, and rests until `begin`."""
        self._is_at_rest = True
        if self._process is None:
            then()
        else:
            self.leave(then)

    def begin(self) -> bool:
        """Start it from standby. Return whether that succeeded: its services may be impossible to load."""
        if self._starts.random() < max(self._load_failures, default=0.0):
            return False
        self._is_at_rest = False
        self.restart()
        return True

    def restart(self) -> None:
        if not self._is_at_rest:
            super().restart()

    def kill(self) -> None:
        super().kill()
        if self._is_at_rest:
            then, self._then = self._then, _ignore
            then()

    def _end(self) -> None:
        """Its process has ended by itself."""
        then, self._then = self._then, _ignore
        self.kill()
        then()

    def _crash(self) -> None:
        """Nothing but a new process helps."""
        self.kill()
        self._kernel.after(RESTART_AFTER_S, self._restart_if_dead)

    def _restart_if_dead(self) -> None:
        if not self.is_alive:
            self.restart()

    def _set_pace(self) -> None:
        if self._process is not None:
            self._process.set_pace(max(self._factors, default=1.0))

    def _set_load_failures(self) -> None:
        if self._process is not None:
            self._process.failures.load_part = max(self._load_failures, default=0.0)

    def _make(self, me: Sender, kernel: IncarnationKernel) -> SimulatedEngine:
        engine, network = self._make_engine(me, kernel, self._timing.lease_s), self._network
        engine.on_end, engine.on_crash = self._end, self._crash
        engine.failures.step_part = self._step_failures
        engine.set_pace(max(self._factors, default=1.0))
        engine.failures.load_part = max(self._load_failures, default=0.0)
        hear = partial(kernel.happen, engine.hear)
        network.hear(me.process, partial(kernel.happen, engine.receive))
        network.notice(me.process, hear)
        network.watch(me.process, SupervisorStatus, hear)
        network.greet(me.process, partial(kernel.happen, engine.welcome))
        return engine

    def _start(self, process: SimulatedEngine, kernel: IncarnationKernel) -> None:
        process.start(kernel.now)


class GatewayIncarnations(Incarnations[SimulatedGateway]):
    """A gateway over its incarnations. ``make`` makes an incarnation of the gateway. Engines see by its heartbeats that
    it lives.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Sender, Kernel], SimulatedGateway],
        kernel: Kernel,
        network: FaultyNetwork,
        topology: Topology,
        on_change: Callable[[str, SimulatedGateway | None], None],
    ) -> None:
        self._make_gateway = make
        super().__init__(name, kernel, network, topology, on_change)

    def _make(self, me: Sender, kernel: IncarnationKernel) -> SimulatedGateway:
        gateway = self._make_gateway(me, kernel)
        self._network.connect(me.process, lambda sender, message: kernel.happen(gateway.receive, sender, message))
        hear = partial(kernel.happen, gateway.hear)
        self._network.subscribe(me.process, hear)
        for kind in gateway.watched():
            self._network.watch(me.process, kind, hear)
        return gateway

    def order(self, command: GatewayMessage) -> None:
        """A person's command, if somebody is there to take it."""
        if self._process is not None:
            self._own_kernel.happen(self._process.receive, COMMAND, command)

    def retire(self, restart_after_s: float) -> None:
        """It is asked to stop (SIGTERM): it ends when its requests have ended, and is started again some time later."""
        if self._process is not None:
            self._process.on_rest = partial(self._kernel.after, 0.0, self._end, self._process, restart_after_s)
            self._own_kernel.happen(self._process.drain)

    def _end(self, gateway: SimulatedGateway, restart_after_s: float) -> None:
        if self._process is gateway:
            self.kill()
            self._kernel.after(restart_after_s, self._restart_if_dead)

    def _restart_if_dead(self) -> None:
        if not self.is_alive:
            self.restart()

    def _start(self, process: SimulatedGateway, kernel: IncarnationKernel) -> None:
        process.start(kernel.now)


class PlacementIncarnations(Incarnations[SimulatedPlacement]):
    """The placement daemon over its incarnations. ``make`` makes an incarnation of the placement daemon. It knows what
    others repeat of what the last one said.

    Its leases are its own: see `router.placement.observe.roster`.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Sender, Kernel], SimulatedPlacement],
        kernel: Kernel,
        network: FaultyNetwork,
        topology: Topology,
        on_change: Callable[[str, SimulatedPlacement | None], None],
    ) -> None:
        self._make_daemon = make
        super().__init__(name, kernel, network, topology, on_change)

    def _make(self, me: Sender, kernel: IncarnationKernel) -> SimulatedPlacement:
        daemon, network = self._make_daemon(me, kernel), self._network
        hear = partial(kernel.happen, daemon.hear)
        network.subscribe(me.process, hear)
        for kind in HEARD:
            network.watch(me.process, kind, hear)
        return daemon

    def _start(self, process: SimulatedPlacement, kernel: IncarnationKernel) -> None:
        process.start(kernel.now)


def _ignore() -> None:
    """Nobody waits for it to leave."""


def _nobody_notices(ended: Sender) -> None:
    """Where no supervisor is."""
