"""Makes the engines and gateways of a simulation from a topology and its profiles."""

from collections.abc import Callable, Mapping
from math import inf

from bench.simulation.coasting import held_tokens
from bench.simulation.copying import CopyModel
from bench.simulation.engine import SimulatedEngine
from bench.simulation.gateway import SimulatedGateway
from bench.simulation.host import Host
from bench.simulation.kernel import Kernel
from bench.simulation.network import Network
from bench.simulation.observer import Observer
from bench.simulation.physics import Physics
from bench.simulation.shared_profiles import Profile, profile_of
from bench.simulation.steps import StepModel
from bench.simulation.workload import asked_of
from engines.blocks import BlockPool
from engines.core import EngineCore
from engines.learning import LearntCost
from engines.packed import block_pool
from engines.pages import PagePool
from engines.profiles import EngineProfile
from engines.scheduler import Limits, ServiceQueue
from engines.settings import EngineSettings
from engines.status import Service
from kvtransfer.layout import block_bytes, page_bytes
from kvtransfer.protocol import Limits as TransferLimits
from mesh.errors import UserError
from mesh.messages import KVShape, MemoryRef, Sender
from mesh.topology.schema import EngineSpec, GatewaySpec, Topology
from router.dispatcher import Dispatcher
from router.ledger import Ledger
from router.lengths import LengthPredictor
from router.limits import DispatchLimits
from router.monitor import Monitor
from router.policies.registry import make_policy

Expect = Callable[[str, float], None]

ONE_MESSAGE = 2**40  # bytes: the blocks of a chunk are one event; `CopyModel` knows what messages they would be
MAX_CONTEXT = 2**31


def _expect_nothing(gateway: str, now: float) -> None:
    """Where nobody dies."""


class Factory:
    """``profiles`` by engine id. ``coasts``: see `SimulatedEngine`. ``observer`` sees what engines do."""

    def __init__(
        self,
        topology: Topology,
        profiles: Mapping[str, Profile],
        physics: Physics,
        network: Network,
        kernel: Kernel,
        *,
        coasts: bool,
        observer: Observer | None,
    ) -> None:
        self._topology = topology
        self._profiles = profiles
        self._physics = physics
        self._network = network
        self._hosts = {spec.host: Host(kernel) for spec in topology.engines} if physics.is_shared else {}
        self._coasts = coasts and not physics.is_shared and not physics.noise
        self._observer = observer

    def gateway(self, spec: GatewaySpec, kernel: Kernel, ledger: Ledger) -> SimulatedGateway:
        policy = make_policy(self._topology.policy, kernel.random(f"policy of {spec.id}"))
        timing, ask_s = self._topology.timing, inf if self._coasts else None  # coasting engines are silent
        limits = DispatchLimits(spec.max_requests, spec.max_waiting, timing.reply_s, timing.stall_s, ask_s=ask_s)
        lengths = LengthPredictor(asked_of)
        dispatcher = Dispatcher(policy, Monitor(timing.lease_s), limits, lengths)
        return SimulatedGateway(spec.id, dispatcher, kernel, self._network, ledger)

    def engine(
        self,
        spec: EngineSpec,
        me: Sender,
        kernel: Kernel,
        expect: Expect = _expect_nothing,
    ) -> SimulatedEngine:
        """A new life of an engine, with empty hands. ``expect``: see `EngineCore`."""
        profile = self._profiles[spec.id]
        services = self._services(spec, profile)
        random = kernel.random(f"steps of {spec.id}@{me.incarnation}")
        steps = {name: StepModel(profile_of(profile, name).cost, self._physics, random) for name in services}
        copies = {name: self._copies(service.shape) for name, service in services.items()}
        core = self._core(spec, services, expect)
        heartbeat_s = self._topology.timing.heartbeat_s
        host = self._hosts.get(spec.host)
        return SimulatedEngine(me, core, steps, copies, kernel, self._network, heartbeat_s, host, coasts=self._coasts)

    def _core(self, spec: EngineSpec, services: Mapping[str, Service], expect: Expect) -> EngineCore:
        num_devices = spec.num_devices or self._profiles[spec.id].num_devices
        deliver_every = min(self._held_tokens(spec, service) for service in services.values()) if self._coasts else 1
        settings, can_open = _settings(self._topology, spec, num_devices, deliver_every), _always
        if self._observer is None:
            return EngineCore(settings, services, can_open, expect)
        return self._observer.core(settings, services, can_open, expect)

    @staticmethod
    def _held_tokens(spec: EngineSpec, service: Service) -> int:
        return held_tokens(service.step_cost().decode, spec.max_running, service.pool.num_blocks * spec.block_size)

    def _copies(self, shape: KVShape) -> CopyModel:
        limits = TransferLimits()
        return CopyModel(
            block_bytes(shape),
            bytes_per_s=self._physics.kv_bytes_per_s,
            message_s=self._physics.kv_message_s,
            message_bytes=limits.message_bytes,
            window=limits.window,
            round_trip_s=2 * self._physics.latency_s,
        )

    def _services(self, spec: EngineSpec, profile: Profile) -> dict[str, Service]:
        """They share the engine's memory by the page, as those of real ones do."""
        sizes = {name: block_bytes(_shape(profile_of(profile, name), spec.block_size)) for name in spec.services}
        size = page_bytes(sizes.values())
        num_pages = profile.kv_memory_bytes // size
        if num_pages < 1:
            raise UserError(f"engines.{spec.id}: its KV memory holds no block of {spec.block_size} tokens")
        pages = PagePool(num_pages)
        quotas = spec.kv_quotas
        pools = {
            name: block_pool(pages, spec.block_size, size // one, quota=quotas.get(name)) for name, one in sizes.items()
        }
        return {name: self._service(spec, name, profile, pool) for name, pool in pools.items()}

    def _service(self, spec: EngineSpec, name: str, profile: Profile, pool: BlockPool) -> Service:
        own = profile_of(profile, name)
        return Service(
            ServiceQueue(name, pool),
            _shape(own, spec.block_size),
            MemoryRef(spec.host, spec.id, profile.kv_memory_bytes, spec.id),
            frozenset(),
            self._topology.service(name).max_context or MAX_CONTEXT,
            LearntCost(own.cost.in_chunks(spec.chunk_tokens)),
        )


def _settings(topology: Topology, spec: EngineSpec, num_devices: int, deliver_every: int) -> EngineSettings:
    return EngineSettings(
        id=spec.id,
        host=spec.host,
        pid=0,
        role=spec.role,
        limits=Limits(spec.max_running, spec.chunk_tokens),
        max_waiting=spec.max_waiting,
        transport=topology.transfer.transport,
        transfer_deadline_s=topology.transfer.deadline_s,
        transfer_limits=TransferLimits(
            reply_s=topology.timing.reply_s,
            message_bytes=ONE_MESSAGE,
            migration_share=topology.transfer.migration_share,
            migration_s=topology.transfer.migration_deadline_s,
        ),
        num_devices=num_devices,
        deliver_every=deliver_every,
        rescheduling=topology.rescheduling,
        scheduling=spec.scheduling,
        starvation_s=spec.starvation_s,
        strict_phases=spec.strict_phases,
    )


def _shape(profile: EngineProfile, block_size: int) -> KVShape:
    """Any shape whose tokens have the profile's size: one head of one layer, K and V of two bytes an element."""
    return KVShape(1, 1, max(1, profile.kv_bytes_per_token // 4), block_size, "float16")


def _always(peer: str, memory: MemoryRef) -> bool:
    return True
