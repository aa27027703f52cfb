"""The composition root of a simulation: a topology's gateways and engines, wired to one kernel and one network."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from bench.simulation.engine import CopyModel, SimulatedEngine
from bench.simulation.gateway import SimulatedGateway
from bench.simulation.kernel import Kernel
from bench.simulation.network import Fate, Network
from bench.simulation.steps import StepModel
from bench.simulation.traces import TraceRequest
from bench.simulation.workload import SloRule, make_spec
from engines.blocks import BlockPool
from engines.core import EngineCore
from engines.costs import Correction
from engines.profiles import EngineProfile
from engines.scheduler import Limits, ServiceQueue
from engines.settings import EngineSettings
from engines.status import Service
from engines.step_cost import StepCost
from kvtransfer.layout import block_bytes
from kvtransfer.protocol import Limits as TransferLimits
from mesh.errors import UserError
from mesh.messages import KVShape, MemoryRef, RequestSpec
from mesh.topology.schema import EngineSpec, GatewaySpec, ServiceSpec, Topology
from router.dispatcher import Dispatcher
from router.ledger import Ledger
from router.limits import DispatchLimits
from router.monitor import Monitor
from router.policies.registry import make_policy
from router.records import Record

STARTUP_S = 1.0  # before the first request can arrive: engines make themselves known
SETTLE_S = 120.0  # for engines to end what is left of requests that ended at their gateway
MESSAGE_BYTES = 2**40  # of KV in one message: the blocks of a chunk travel together
MAX_CONTEXT = 2**31


@dataclass(frozen=True, slots=True)
class Physics:
    """What is modelled besides the engines' costs."""

    latency_s: float = 2e-4  # of a control message
    kv_bytes_per_s: float = 25e9  # between two engines
    kv_latency_s: float = 5e-4  # of each message of KV blocks
    noise: float = 0.0  # standard deviation of the logarithm of step times


class Simulation:
    """One run: its seed decides everything. ``profiles`` by engine id. ``coasts``: see `SimulatedEngine`."""

    def __init__(
        self,
        topology: Topology,
        profiles: Mapping[str, EngineProfile],
        *,
        seed: int,
        physics: Physics,
        slo: SloRule,
        fate: Fate | None = None,
        coasts: bool = False,
    ) -> None:
        self.kernel = Kernel(seed, now=-STARTUP_S)
        self._topology = topology
        self._profiles = profiles
        self._physics = physics
        self._slo = slo
        self._coasts = coasts
        self._network = Network(self.kernel, physics.latency_s, fate)
        self._on_record: Callable[[Record], None] = _ignore
        self._ledger = Ledger(self._ended)
        self._gateways = [self._gateway(spec) for spec in topology.gateways]
        self.engines = {spec.id: self._engine(spec) for spec in topology.engines}
        self._num_submitted = 0
        self._has_more = True

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
        self._settle()

    def _schedule_next(self, service: ServiceSpec, trace: Iterator[TraceRequest]) -> None:
        request = next(trace, None)
        if request is None:
            self._has_more = False
            self._stop_at_rest()
        else:
            self.kernel.at(request.at_s, self._arrive, request, service, trace)

    def _arrive(self, request: TraceRequest, service: ServiceSpec, trace: Iterator[TraceRequest]) -> None:
        gateway = self._gateways[self._num_submitted % len(self._gateways)]
        cost = self._reference_profile(service).prefill
        spec = make_spec(request, self._num_submitted, gateway.name, service, cost, self._slo)
        self._num_submitted += 1
        self._ledger.arrived(spec, self.kernel.now)
        gateway.submit(spec)
        self._schedule_next(service, trace)

    def _reference_profile(self, service: ServiceSpec) -> EngineProfile:
        """Of the first engine that serves it: whose unloaded prefill time counts."""
        return next(self._profiles[spec.id] for spec in self._topology.engines if service.name in spec.services)

    def _ended(self, record: Record, spec: RequestSpec) -> None:
        self._on_record(record)
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

    # --- making -------------------------------------------------------------------------------------------------------

    def _gateway(self, spec: GatewaySpec) -> SimulatedGateway:
        policy = make_policy(self._topology.policy, self.kernel.random(f"policy of {spec.id}"))
        limits = DispatchLimits(spec.max_requests, spec.max_waiting, self._topology.timing.reply_s)
        dispatcher = Dispatcher(policy, Monitor(self._topology.timing.lease_s), limits)
        return SimulatedGateway(spec.id, dispatcher, self.kernel, self._network, self._ledger)

    def _engine(self, spec: EngineSpec) -> SimulatedEngine:
        profile, physics = self._profiles[spec.id], self._physics
        services = {name: self._service(spec, name, profile) for name in spec.services}
        core = EngineCore(_settings(self._topology, spec), services, lambda peer, memory: True)
        random = self.kernel.random(f"steps of {spec.id}")
        steps = {name: StepModel(StepCost(profile.prefill, profile.decode), physics.noise, random) for name in services}
        copies = {
            name: CopyModel(block_bytes(service.shape), physics.kv_bytes_per_s, physics.kv_latency_s)
            for name, service in services.items()
        }
        heartbeat_s = self._topology.timing.heartbeat_s
        return SimulatedEngine(
            spec.id, core, steps, copies, self.kernel, self._network, heartbeat_s, coasts=self._coasts
        )

    def _service(self, spec: EngineSpec, name: str, profile: EngineProfile) -> Service:
        shape = _shape(profile, spec.block_size)
        num_blocks = profile.kv_memory_bytes // len(spec.services) // block_bytes(shape)
        if num_blocks < 1:
            raise UserError(f"engines.{spec.id}: its KV memory holds no block of {spec.block_size} tokens")
        return Service(
            ServiceQueue(name, BlockPool(num_blocks, spec.block_size)),
            shape,
            MemoryRef(spec.host, spec.id, profile.kv_memory_bytes, spec.id),
            frozenset(),
            self._topology.service(name).max_context or MAX_CONTEXT,
            replace(profile.prefill, chunk_tokens=spec.chunk_tokens),
            profile.decode,
            Correction(),
            Correction(),
        )


def _settings(topology: Topology, spec: EngineSpec) -> EngineSettings:
    return EngineSettings(
        id=spec.id,
        host=spec.host,
        pid=0,
        role=spec.role,
        limits=Limits(spec.max_running, spec.chunk_tokens),
        max_waiting=spec.max_waiting,
        transport=topology.transfer.transport,
        transfer_deadline_s=topology.transfer.deadline_s,
        transfer_limits=TransferLimits(reply_s=topology.timing.reply_s, message_bytes=MESSAGE_BYTES),
    )


def _shape(profile: EngineProfile, block_size: int) -> KVShape:
    """Any shape whose tokens have the profile's size: one head of one layer, K and V of two bytes an element."""
    return KVShape(1, 1, max(1, profile.kv_bytes_per_token // 4), block_size, "float16")


def _ignore(record: Record) -> None:
    """Nobody asked for records."""
