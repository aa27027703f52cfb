"""The composition root of a simulation: a topology's gateways and engines, wired to one kernel and one network."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from bench.simulation.engine import SimulatedEngine
from bench.simulation.factory import Factory
from bench.simulation.faults import Fault, Injector, Loss, losing
from bench.simulation.faulty_network import FaultyNetwork
from bench.simulation.kernel import Kernel
from bench.simulation.lives import Mortal
from bench.simulation.network import Network
from bench.simulation.physics import Physics
from bench.simulation.timeline import Timeline
from bench.simulation.trace_request import TraceRequest
from bench.simulation.workload import SloRule, blocks_of, make_spec
from engines.profiles import EngineProfile
from mesh.messages import RequestSpec, Sender
from mesh.topology.schema import ServiceSpec, Topology
from router.ledger import Ledger
from router.records import Outcome, Record

STARTUP_S = 1.0  # before the first request can arrive: engines make themselves known
SETTLE_S = 120.0  # for engines to end what is left of requests that ended at their gateway


class Simulation:
    """One run: its seed decides everything. ``profiles`` by engine id. ``coasts``: see `SimulatedEngine`.

    ``engines`` are the living ones. With ``timeline``, made for `origin_s`, it can be seen what they did.
    """

    origin_s = -STARTUP_S

    def __init__(
        self,
        topology: Topology,
        profiles: Mapping[str, EngineProfile],
        *,
        seed: int,
        physics: Physics,
        slo: SloRule,
        faults: Sequence[Fault] = (),
        coasts: bool = False,
        timeline: Timeline | None = None,
    ) -> None:
        self.kernel = Kernel(seed, now=self.origin_s)
        self.engines: dict[str, SimulatedEngine] = {}
        self._topology = topology
        self._profiles = profiles
        self._slo = slo
        self._timeline = timeline
        self._on_record: Callable[[Record], None] = _ignore
        self._ledger = Ledger(self._ended)
        self._num_submitted = 0
        self._has_more = True
        if faults:
            fate = losing(
                [fault for fault in faults if isinstance(fault, Loss)], self.kernel, self.kernel.random("fate")
            )
            faulty = FaultyNetwork(self.kernel, physics.latency_s, fate)
            network: Network = faulty
        else:
            network = Network(self.kernel, physics.latency_s)
        factory = Factory(topology, profiles, physics, network, self.kernel, coasts=coasts, timeline=timeline)
        self.gateways = [factory.gateway(spec, self.kernel, self._ledger) for spec in topology.gateways]
        if faults:
            self._bear_mortals(factory, faulty, faults)
        else:
            for spec in topology.engines:
                engine = self.engines[spec.id] = factory.engine(spec, Sender(spec.id, 1), self.kernel)
                if topology.rescheduling is not None:
                    network.overhear(engine.observe)

    def _bear_mortals(self, factory: Factory, network: FaultyNetwork, faults: Sequence[Fault]) -> None:
        topology = self._topology
        mortals = {
            spec.id: Mortal(spec.id, partial(factory.engine, spec), self.kernel, network, topology, self._change)
            for spec in topology.engines
        }
        Injector(self.kernel, network, mortals, self._timeline).schedule(faults)
        self._show_gateways(network)

    def _change(self, name: str, engine: SimulatedEngine | None) -> None:
        if engine is None:
            del self.engines[name]
        else:
            self.engines[name] = engine

    def _show_gateways(self, network: FaultyNetwork) -> None:
        """Engines see by their heartbeats that gateways live."""
        for gateway in self.gateways:
            network.show(Sender(gateway.name, 1))
        self.kernel.after(self._topology.timing.heartbeat_s, self._show_gateways, network)

    def __repr__(self) -> str:
        return f"<Simulation {self.kernel!r} {self._ledger!r}>"

    def run(self, service: str, trace: Iterable[TraceRequest], on_record: Callable[[Record], None]) -> None:
        """Let the requests of a trace (in order of arrival) happen; every one ends with its record, exactly once."""
        self._on_record = on_record
        starting = self.kernel.random("start")
        for engine in self.engines.values():
            engine.start(self.kernel.now + starting.uniform(0, self._topology.timing.heartbeat_s))
        self._schedule_next(self._topology.service(service), iter(trace))
        self.kernel.run()
        if self._timeline is not None:
            self._timeline.close(self.kernel.now)
        self._settle()

    def _schedule_next(self, service: ServiceSpec, trace: Iterator[TraceRequest]) -> None:
        request = next(trace, None)
        if request is None:
            self._has_more = False
            self._stop_at_rest()
        else:
            self.kernel.at(request.at_s, self._arrive, request, service, trace)

    def _arrive(self, request: TraceRequest, default: ServiceSpec, trace: Iterator[TraceRequest]) -> None:
        service = default if request.service is None else self._topology.service(request.service)
        gateway = self.gateways[self._num_submitted % len(self.gateways)]
        cost = self._reference_profile(service).prefill
        spec = make_spec(request, self._num_submitted, gateway.name, service, cost, self._slo)
        self._num_submitted += 1
        self._ledger.arrived(spec, self.kernel.now)
        gateway.submit(spec)
        self._schedule_next(default, trace)

    def _reference_profile(self, service: ServiceSpec) -> EngineProfile:
        """Of the first engine that serves it: whose unloaded prefill time counts."""
        return next(self._profiles[spec.id] for spec in self._topology.engines if service.name in spec.services)

    def _ended(self, record: Record, spec: RequestSpec) -> None:
        assert record.outcome is not Outcome.FINISHED or record.output_tokens <= spec.sampling.max_tokens, record
        self._on_record(replace(record, hash_ids=blocks_of(spec.prompt)))
        self._stop_at_rest()

    def _stop_at_rest(self) -> None:
        if not self._has_more and not len(self._ledger):
            self.kernel.stop()

    def _settle(self) -> None:
        """Let the engines come to rest, and check that none holds on to anything."""
        deadline = self.kernel.now + SETTLE_S
        while not all(engine.core.is_idle for engine in self.engines.values()):
            if self.kernel.now > deadline:
                busy = [engine for engine in self.engines.values() if not engine.core.is_idle]
                raise RuntimeError(f"at rest, engines still hold something: {busy}")
            self.kernel.run(self.kernel.now + self._topology.timing.heartbeat_s)
        for engine in self.engines.values():
            engine.core.check_invariants()


def _ignore(record: Record) -> None:
    """Nobody asked for records."""
