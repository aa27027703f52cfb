"""The processes of a simulation in which things go wrong: who lives, who dies, and what is asked of them."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from bench.simulation.engine import SimulatedEngine
from bench.simulation.factory import Factory
from bench.simulation.faults import DISTURBANCES, Fates, Fault, Injector
from bench.simulation.faulty_network import FaultyNetwork
from bench.simulation.gateway import SimulatedGateway
from bench.simulation.kernel import Kernel
from bench.simulation.lives import EngineLives, GatewayLives
from bench.simulation.timeline import Timeline
from mesh.topology.schema import Topology
from router.ledger import Ledger


class Mortals:
    """Engines and gateways by name, over all their lives, and the network between them.

    ``hits`` counts faults that befell somebody, by kind.
    """

    def __init__(self, topology: Topology, kernel: Kernel, latency_s: float, faults: Sequence[Fault]) -> None:
        self.engines: dict[str, EngineLives] = {}
        self.gateways: dict[str, GatewayLives] = {}
        self.hits: Counter[str] = Counter()
        self._topology = topology
        self._kernel = kernel
        self._faults = faults
        disturbances = [fault for fault in faults if isinstance(fault, DISTURBANCES)]
        fates = Fates(disturbances, kernel, kernel.random("fate"), self.hits) if disturbances else None
        self.network = FaultyNetwork(kernel, latency_s, fates)

    def __repr__(self) -> str:
        return f"<Mortals {sorted(self.engines)} {sorted(self.gateways)}>"

    def bear(
        self,
        factory: Factory,
        ledger: Ledger,
        timeline: Timeline | None,
        on_engine: Callable[[str, SimulatedEngine | None], None],
        on_gateway: Callable[[str, SimulatedGateway | None], None],
    ) -> None:
        """Their first lives. Call before anything has happened; faults will."""
        kernel, network, topology = self._kernel, self.network, self._topology
        for gateway in topology.gateways:
            make_gateway = partial(factory.gateway, gateway, ledger=ledger)
            self.gateways[gateway.id] = GatewayLives(gateway.id, make_gateway, kernel, network, topology, on_gateway)
        for engine in topology.engines:
            make_engine = partial(factory.engine, engine)
            self.engines[engine.id] = EngineLives(engine.id, make_engine, kernel, network, topology, on_engine)
        Injector(kernel, network, self.engines, self.gateways, timeline, self.hits).schedule(self._faults)
