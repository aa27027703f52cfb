"""The processes of a simulation in which things go wrong: who lives, who dies, and what is asked of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mesh.addresses import supervisor_id
from mesh.errors import UserError
from mesh.process.compiled_core import is_compiled
from mesh.topology.schema import Topology
from mesh.wire.frames import Sender
from simulation.engines.engine import SimulatedEngine
from simulation.factory import Factory
from simulation.faults.faults import DISTURBANCES, Fates, Fault
from simulation.faults.faulty_network import FaultyNetwork
from simulation.faults.incarnations import EngineIncarnations, GatewayIncarnations, PlacementIncarnations
from simulation.faults.injector import FaultTarget, Injector
from simulation.faults.supervisors import SimulatedSupervisor
from simulation.gateway import SimulatedGateway
from simulation.kernel import Kernel
from simulation.network import Network
from simulation.placement.daemon import SimulatedPlacement
from simulation.reports.timeline import Timeline


class Processes:
    """Engines and gateways by name, over all their incarnations, and the network between them.

    ``hits`` counts faults that befell somebody, by kind.
    """

    def __init__(self, topology: Topology, kernel: Kernel, latency_s: float, faults: Sequence[Fault]) -> None:
        self.engines: dict[str, EngineIncarnations] = {}
        self.gateways: dict[str, GatewayIncarnations] = {}
        self.placement: dict[str, PlacementIncarnations] = {}
        self.supervisors: dict[str, SimulatedSupervisor] = {}
        self.hits: Counter[str] = Counter()
        self._topology = topology
        self._kernel = kernel
        self._faults = faults
        disturbances = [fault for fault in faults if isinstance(fault, DISTURBANCES)]
        fates = Fates(disturbances, kernel, kernel.random("fate"), self.hits) if disturbances else None
        if is_compiled(Network):
            raise UserError(
                "simulations in which engines start ([scaling], spans) or faults happen do not run compiled: leave "
                "`python -m simulation.compiled` out"
            )
        self.network = FaultyNetwork(kernel, latency_s, fates)

    def __repr__(self) -> str:
        return f"<Processes {sorted(self.engines)} {sorted(self.gateways)}>"

    def bear(
        self,
        factory: Factory,
        on_engine: Callable[[str, SimulatedEngine | None], None],
        on_gateway: Callable[[str, SimulatedGateway | None], None],
    ) -> None:
        """Their first incarnations. Call before anything has happened."""
        kernel, network, topology = self._kernel, self.network, self._topology
        for gateway in topology.gateways:
            make_gateway = partial(factory.gateway, gateway)
            self.gateways[gateway.id] = GatewayIncarnations(
                gateway.id, make_gateway, kernel, network, topology, on_gateway
            )
        sharing = {name for spec in topology.engines if spec.spans for name in (spec.id, *spec.spans)}
        for engine in topology.engines:
            make_engine = partial(factory.engine, engine)
            is_born = not (engine.is_standby and (engine.id in sharing or topology.scaling is not None))
            self.engines[engine.id] = EngineIncarnations(
                engine.id, make_engine, kernel, network, topology, on_engine, is_born=is_born
            )

    def bear_placement(
        self,
        make: Callable[[Sender, Kernel], SimulatedPlacement],
        on_change: Callable[[str, SimulatedPlacement | None], None],
    ) -> None:
        """The first incarnation of the placement daemon."""
        assert self._topology.placement is not None, "the topology has a daemon"
        name = self._topology.placement.id
        self.placement[name] = PlacementIncarnations(name, make, self._kernel, self.network, self._topology, on_change)

    def bear_supervisors(self, start_s: Callable[[str], float]) -> None:
        """One of each host. They are never killed. Call when all others are there."""
        topology, heartbeat_s = self._topology, self._topology.timing.heartbeat_s
        daemon = topology.placement
        for host in topology.hosts:
            name = supervisor_id(host.name)
            engines = {spec.id: self.engines[spec.id] for spec in topology.engines if spec.host == host.name}
            others = {spec.id: "gateway" for spec in topology.gateways if spec.host == host.name}
            if daemon is not None and daemon.id in self.placement and daemon.host == host.name:
                others[daemon.id] = "placement"
            spans = {spec.id: spec.spans for spec in topology.engines if spec.host == host.name and spec.spans}
            supervisor = self.supervisors[name] = SimulatedSupervisor(
                Sender(name, 1), host.name, engines, spans, others, start_s, self._kernel, self.network, heartbeat_s
            )
            for here in (self.engines, self.gateways, self.placement):
                for process in here.keys() & (engines.keys() | others.keys()):
                    here[process].on_death = supervisor.notice

    def schedule(self, timeline: Timeline | None) -> None:
        """Let faults happen."""
        processes: dict[str, Mapping[str, FaultTarget]] = {"gateway": self.gateways, "placement daemon": self.placement}
        Injector(self._kernel, self.network, self.engines, processes, timeline, self.hits).schedule(self._faults)
