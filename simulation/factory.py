"""Makes the engines and gateways of a simulation from a topology and its profiles."""

from collections.abc import Callable, Mapping
from math import inf

from engines.core import EngineCore
from engines.node import EngineNode
from engines.settings import EngineSettings
from mesh.topology.schema import EngineSpec, GatewaySpec, Topology
from mesh.wire.frames import Sender
from mesh.wire.requests import RequestSpec
from mesh.wire.transfers import MemoryRef
from router.gateway_core import GatewayParts
from router.history.lengths import LengthPredictor, usual_answers
from router.history.records import Record
from router.history.summary import record_of
from router.history.tallies import Tallies
from router.history.timeline import RequestTimeline
from router.history.timelines import TimelineReaders, Timelines
from router.policies.capabilities import SeesGateways, lengths_for_engines
from router.policies.in_force import PolicyInForce
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.view.monitor import Monitor
from simulation.engines.coasting import HELD_TOKENS
from simulation.engines.device import SharedDevice
from simulation.engines.engine import SimulatedEngine
from simulation.engines.hardware import SharedHardware
from simulation.engines.host import Host
from simulation.engines.models import SimulatedModels, weights_s
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import Profile
from simulation.engines.tiers import HostTiers
from simulation.gateway import SimulatedGateway
from simulation.kernel import Kernel
from simulation.loads.workload import asked_of
from simulation.network import Network
from simulation.observer import CoreParts, Observer

OnEnd = Callable[[Record, RequestSpec], None]
MakeTimelines = Callable[[TimelineReaders], Timelines]

ONE_MESSAGE = 2**40  # bytes: the blocks of a chunk are one event; `CopyModel` knows what messages they would be


class Factory:
    """Makes the processes of a simulation. ``profiles`` by engine id. ``coasts``: see `SimulatedEngine`. ``observer``
    sees what engines do.

    ``on_end`` is told of each request that ends. ``timelines`` makes those of a gateway.
    """

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
        on_end: OnEnd,
        timelines: MakeTimelines = Timelines,
    ) -> None:
        self._topology = topology
        self._profiles = profiles
        self._physics = physics
        self._network = network
        shares = physics.is_shared or any(spec.most_threads > spec.threads for spec in topology.own_engines)
        self._hosts = _hosts(topology, kernel, physics) if shares else {}
        tiers = topology.kv_tiers
        self._tiers = {} if tiers is None else {spec.host: HostTiers(tiers, physics) for spec in topology.own_engines}
        self._coasts = coasts and not shares and not physics.noise
        self._observer = observer
        self._on_end = on_end
        self._make_timelines = timelines

    def timelines(self, tallies: Tallies) -> Timelines:
        """Make the timelines of a new gateway. Their ends are told to whoever runs the simulation, too."""

        def ended(timeline: RequestTimeline, request: RequestSpec) -> None:
            record = record_of(timeline)
            tallies.ended(record, request.service)
            self._on_end(record, request)

        return self._make_timelines(TimelineReaders(arrived=(tallies.arrived,), ended=(ended,)))

    def gateway(self, spec: GatewaySpec, me: Sender, kernel: Kernel) -> SimulatedGateway:
        policy = PolicyInForce(self._topology.policy, kernel.random(f"policy of {spec.id}"), kernel.now)
        timing = self._topology.timing
        ask_s, stall_s = (inf, inf) if self._coasts else (None, timing.stall_s)  # coasting engines are silent, and live
        limits = DispatchLimits(spec.max_requests, spec.max_waiting, timing.reply_s, stall_s, ask_s=ask_s)
        lengths, tallies = LengthPredictor(asked_of, usual_answers(self._topology)), Tallies()
        monitor = Monitor(timing.lease_s, spec.id, timing.status_gap_s)
        dispatcher = Dispatcher(
            policy.policy,
            monitor,
            limits,
            self.timelines(tallies),
            lengths,
            engine_lengths=lengths_for_engines(self._topology.rescheduling),
        )
        parts = GatewayParts(self._topology, spec.id, 0, dispatcher, monitor, policy, tallies)
        has_others = len(self._topology.gateways) > 1
        sees_others = policy.policy.offers(SeesGateways) is not None or monitor.may_be_late
        watches = has_others and (self._network.has_faults or sees_others)
        return SimulatedGateway(me, parts, kernel, self._network, watches_others=watches)

    def engine(self, spec: EngineSpec, me: Sender, kernel: Kernel, lease_s: float = inf) -> SimulatedEngine:
        """A new incarnation of an engine, with empty hands. ``lease_s``: infinite where nobody can die."""
        random = kernel.random(f"steps of {spec.id}@{me.incarnation}")
        tiers = self._tiers.get(spec.host)
        models = SimulatedModels(self._topology, spec, self._profiles[spec.id], self._physics, random, tiers)
        node = EngineNode(self._core(spec, models), self._topology, spec.id, lease_s)
        host = self._hosts.get(spec.host)
        return SimulatedEngine(me, node, models, kernel, self._network, host, coasts=self._coasts)

    def start_s(self, engine: str) -> float:
        """Return the seconds from the start of an engine's process until it serves what the topology says."""
        spec = self._topology.engine(engine)
        loads = (weights_s(self._profiles[engine], name, self._physics) for name in spec.services)
        return self._physics.boot_s + sum(loads)

    def _core(self, spec: EngineSpec, models: SimulatedModels) -> EngineCore:
        num_devices = spec.num_devices or self._profiles[spec.id].num_devices
        deliver_every = HELD_TOKENS if self._coasts else 1
        settings = EngineSettings.of(
            self._topology,
            spec,
            pid=0,
            message_bytes=ONE_MESSAGE,
            num_devices=num_devices,
            loadable=models.loadable,
            deliver_every=deliver_every,
        )
        parts = CoreParts(settings, models.services, _always)
        return parts.core() if self._observer is None else self._observer.core(parts)


def _hosts(topology: Topology, kernel: Kernel, physics: Physics) -> dict[str, SharedHardware]:
    engines = sorted(topology.engines, key=lambda spec: spec.id)
    names = dict.fromkeys(spec.host for spec in engines)
    if physics.sm_quotas:
        return {name: SharedDevice(kernel, physics.sm_quotas) for name in names}
    return {name: Host(kernel, [spec for spec in engines if spec.host == name]) for name in names}


def _always(peer: str, memory: MemoryRef) -> bool:
    return True
