"""The composition root of a simulation: a topology's gateways and engines, wired to one kernel and one network."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from mesh.topology.schema import Topology
from mesh.wire.frames import Sender
from mesh.wire.requests import RequestSpec
from mesh.wire.status import PrefillCost
from router import generation
from router.generation import RequestFailed
from router.history.records import Outcome, Record
from router.history.tallies import Tallies
from router.history.timelines import TimelineReaders, Timelines
from router.placement.daemon import PlacementDaemon
from router.placement.effects import Note
from simulation.engines.engine import SimulatedEngine
from simulation.engines.physics import Physics
from simulation.engines.servers import imitated
from simulation.engines.shared_profiles import Profile, profile_of
from simulation.factory import Factory
from simulation.faults.faults import Fault
from simulation.faults.invariants import Invariants
from simulation.faults.processes import Processes
from simulation.gateway import SimulatedGateway
from simulation.kernel import Kernel
from simulation.loads.play import DueRequest, LoadPlay, OpenPlay
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule, blocks_of, make_spec
from simulation.network import Network
from simulation.placement.daemon import Search, SimulatedPlacement
from simulation.reports.timeline import Timeline

STARTUP_S = 1.0  # before the first request can arrive: engines make themselves known
SETTLE_S = 120.0  # for engines to end what is left of requests that ended at their gateway
TOLD_EVERY_S = 60.0  # the time, to who wants to hear it
KEPT_TIMELINES = 64  # of requests that ended: nobody asks for them


class Simulation:
    """One run: its seed decides everything. ``profiles`` by engine id. ``coasts``: see `SimulatedEngine`; where things
    may go wrong, every step is computed.

    ``engines``, ``gateways`` and ``placement`` are the living ones. With ``timeline``, made for `origin_s`, it can be
    seen what they did. With ``faults``, or if there are ``invariants`` to be watched, processes are ``processes``.
    With ``has_supervisors``, those tell of processes that end; without, leases do. With a ``search``, a topology that
    has a placement daemon has one here; ``on_note`` hears what it says for its log. No request arrives before
    ``begins_s``.
    """

    origin_s = -STARTUP_S

    def __init__(
        self,
        topology: Topology,
        profiles: Mapping[str, Profile],
        *,
        seed: int,
        physics: Physics,
        slo: SloRule,
        faults: Sequence[Fault] = (),
        coasts: bool = False,
        timeline: Timeline | None = None,
        invariants: Invariants | None = None,
        has_supervisors: bool = True,
        search: Search | None = None,
        on_note: Callable[[float, Note], None] | None = None,
        begins_s: float = 0.0,
    ) -> None:
        self.kernel = Kernel(seed, now=self.origin_s + begins_s)
        self.engines: dict[str, SimulatedEngine] = {}
        self.gateways: dict[str, SimulatedGateway] = {}
        self.placement: SimulatedPlacement | None = None
        self.processes: Processes | None = None
        self.open: dict[str, str] = {}  # the gateways of requests that have not ended
        topology = imitated(topology, profiles)
        self._topology = topology
        self._gateway_names = [spec.id for spec in topology.gateways]
        self._prefill_costs: dict[str, PrefillCost] = {}  # by service
        self._profiles = profiles
        self._slo = slo
        self._timeline = timeline
        self._invariants = invariants
        self._seed = seed
        self._search = search
        self._on_note = on_note or _ignore_note
        self._on_record: Callable[[Record], None] = _ignore
        self._load: LoadPlay = OpenPlay(())
        self._default = topology.services[0]
        self._numbers: dict[str, int] = {}  # of requests that are open, in their load
        self._blocks: dict[str, tuple[int, ...]] = {}  # likewise, where the load names any
        self._num_to_follow = 0  # requests that arrive because others have ended
        self._num_submitted = 0
        self._has_more = True
        self._is_left = False
        coasts = coasts and not faults and invariants is None
        self.network = network = Network(self.kernel, physics.latency_s)
        starts_engines = topology.scaling is not None or any(spec.spans for spec in topology.engines)
        if faults or invariants is not None or starts_engines:
            self.processes = Processes(topology, self.kernel, physics.latency_s, faults)
            self.network = network = self.processes.network
        observer = timeline if invariants is None else invariants
        factory = Factory(
            topology,
            profiles,
            physics,
            network,
            self.kernel,
            coasts=coasts,
            observer=observer,
            on_end=self._ended,
            timelines=_few_timelines if invariants is None else invariants.timelines,
        )
        self._unserved = factory.timelines(Tallies())  # of requests that found no gateway
        if invariants is not None:
            invariants.attach(self)
        if self.processes is not None:
            self.processes.bear(factory, self._change_engine, self._change_gateway)
            if self._has_placement:
                self.processes.bear_placement(self._make_placement, self._change_placement)
            if has_supervisors or starts_engines:
                self.processes.bear_supervisors(factory.start_s)
            self.processes.schedule(timeline)
            return
        for gateway in topology.gateways:
            self.gateways[gateway.id] = factory.gateway(gateway, Sender(gateway.id, 1), self.kernel)
        for spec in topology.engines:
            engine = self.engines[spec.id] = factory.engine(spec, Sender(spec.id, 1), self.kernel)
            if topology.rescheduling is not None or topology.placement is not None:
                network.overhear(engine.hear)
        if topology.placement is not None and self._has_placement:
            self.placement = self._make_placement(Sender(topology.placement.id, 1), self.kernel)

    def __repr__(self) -> str:
        return f"<Simulation {self.kernel!r} {len(self.open)} requests open>"

    # --- incarnations -------------------------------------------------------------------------------------------------

    def _change_engine(self, name: str, engine: SimulatedEngine | None) -> None:
        if engine is None:
            del self.engines[name]
        else:
            self.engines[name] = engine

    def _change_gateway(self, name: str, gateway: SimulatedGateway | None) -> None:
        if gateway is not None:
            self.gateways[name] = gateway
            return
        self.gateways.pop(name).died(RequestFailed("its gateway died", generation.Fault.SERVER))

    @property
    def _has_placement(self) -> bool:
        return self._topology.placement is not None and self._search is not None

    def _make_placement(self, me: Sender, kernel: Kernel) -> SimulatedPlacement:
        assert self._search is not None, "the daemon has something to search with"
        daemon = PlacementDaemon(self._topology, kernel.now, seed=self._seed)
        heartbeat_s = self._topology.timing.heartbeat_s
        return SimulatedPlacement(me, daemon, self._search, kernel, self.network, heartbeat_s, self._on_note)

    def _change_placement(self, name: str, placement: SimulatedPlacement | None) -> None:
        self.placement = placement

    # --- requests -----------------------------------------------------------------------------------------------------

    def run(self, service: str, trace: Iterable[TraceRequest], on_record: Callable[[Record], None]) -> None:
        """Let the requests of a trace (in order of arrival) happen; every one ends with its record, exactly once."""
        self.play(service, OpenPlay(trace), on_record)

    def play(
        self,
        service: str,
        load: LoadPlay,
        on_record: Callable[[Record], None],
        on_time: Callable[[float], None] | None = None,
    ) -> None:
        """Let a load happen; every request ends with its record, exactly once. Those that name none get ``service``.
        ``on_time`` hears now and then what time it is, also while no request ends.
        """
        self._on_record = on_record
        self._load = load
        self._default = self._topology.service(service)
        starting = self.kernel.random("start")
        within_s = min(self._topology.timing.heartbeat_s, STARTUP_S)  # however rare statuses are
        for engine in self.engines.values():
            engine.start(self.kernel.now + starting.uniform(0, within_s))
        for gateway in self.gateways.values():
            gateway.start(self.kernel.now + starting.uniform(0, within_s))
        if self.placement is not None:
            self.placement.start(self.kernel.now)
        for supervisor in self.processes.supervisors.values() if self.processes is not None else ():
            supervisor.start(self.kernel.now)
        self._schedule_next(load.arrivals())
        if on_time is not None:
            self._tell_time(on_time)
        self.kernel.run()
        if self._timeline is not None:
            self._timeline.close(self.kernel.now)
        if not self._is_left:
            self._settle()

    def _tell_time(self, on_time: Callable[[float], None]) -> None:
        on_time(self.kernel.now)
        self.kernel.after(TOLD_EVERY_S, self._tell_time, on_time)

    def stop(self) -> None:
        """Leave off after the present event, whatever is open."""
        self._is_left = True
        self.kernel.stop()

    def leave(self, request: str) -> None:
        """Let a client go away."""
        assert self.processes is not None, "clients leave where things go wrong"
        self.processes.gateways[self.open[request]].happen(self._leave, request)

    def _leave(self, request: str) -> None:
        if request in self.open:
            self.gateways[self.open[request]].cancel(request)

    def fall_behind(self, request: str, num_bytes: int) -> None:
        """Let a client leave too much unread."""
        assert self.processes is not None, "clients fall behind where things go wrong"
        gateway = self.gateways.get(self.open[request])
        if gateway is not None:
            self.processes.gateways[self.open[request]].happen(gateway.fall_behind, request, num_bytes)

    def _schedule_next(self, arrivals: Iterator[DueRequest]) -> None:
        arrival = next(arrivals, None)
        if arrival is None:
            self._has_more = False
            self._stop_at_rest()
        else:
            self.kernel.at(arrival.at_s, self._arrive_of, arrival, arrivals)

    def _arrive_of(self, arrival: DueRequest, arrivals: Iterator[DueRequest]) -> None:
        self._arrive(arrival)
        self._schedule_next(arrivals)

    def _arrive_after(self, arrival: DueRequest) -> None:
        self._num_to_follow -= 1
        self._arrive(arrival)

    def _arrive(self, arrival: DueRequest) -> None:
        request = arrival.request
        service = self._default if request.service is None else self._topology.service(request.service)
        names = [name for name in self._gateway_names if name in self.gateways] or self._gateway_names
        name = names[self._num_submitted % len(names)]
        cost = self._prefill_cost(service.base or service.name)
        spec = make_spec(request, arrival.number, name, service, cost, self._slo, arrival.origin)
        self._num_submitted += 1
        self.open[spec.id] = name
        self._numbers[spec.id] = arrival.number
        if request.blocks:
            self._blocks[spec.id] = blocks_of(request)
        self._submit(name, spec, request.tenant)

    def _submit(self, name: str, spec: RequestSpec, tenant: str) -> None:
        gateway = self.gateways.get(name)
        if gateway is None:
            error = RequestFailed("no gateway was there", generation.Fault.SERVER)
            self._unserved.failed(self._unserved.arrived(spec, self.kernel.now), error, self.kernel.now)
        elif self.processes is None:
            gateway.submit(spec, gateway.arrived(spec), tenant)
        else:
            self.processes.gateways[name].happen(gateway.submit, spec, gateway.arrived(spec), tenant)

    def _prefill_cost(self, service: str) -> PrefillCost:
        """Of the first engine that serves it: whose unloaded prefill time counts."""
        cost = self._prefill_costs.get(service)
        if cost is None:
            first = next(spec.id for spec in self._topology.engines if service in spec.services)
            cost = self._prefill_costs[service] = profile_of(self._profiles[first], service).prefill
        return cost

    def _ended(self, record: Record, spec: RequestSpec) -> None:
        assert record.outcome is not Outcome.FINISHED or record.output_tokens <= spec.sampling.max_tokens, record
        del self.open[spec.id]
        blocks = self._blocks.pop(spec.id, ())
        self._on_record(replace(record, hash_ids=blocks) if blocks else record)
        follower = self._load.ended(self._numbers.pop(spec.id), self.kernel.now)
        if follower is not None:
            self._num_to_follow += 1
            self.kernel.at(follower.at_s, self._arrive_after, follower)
        self._stop_at_rest()

    # --- the end ------------------------------------------------------------------------------------------------------

    def _stop_at_rest(self) -> None:
        if not self._has_more and not self.open and not self._num_to_follow:
            self.kernel.stop()

    def _settle(self) -> None:
        """Let the engines come to rest, and check that none holds on to anything."""
        now = self.kernel.now  # as long as nothing happens, the kernel's stands still
        deadline = now + SETTLE_S
        while not all(engine.core.is_idle for engine in self.engines.values()):
            if now > deadline:
                busy = [engine for engine in self.engines.values() if not engine.core.is_idle]
                raise RuntimeError(f"at rest, engines still hold something: {busy}")
            now += self._topology.timing.heartbeat_s
            self.kernel.run(now)
        for engine in self.engines.values():
            engine.core.check_invariants()
        if self._invariants is not None:
            self._invariants.at_rest()


def _ignore(record: Record) -> None:
    """Nobody asked for records."""


def _ignore_note(now: float, note: Note) -> None:
    """Nobody reads the log of the placement daemon."""


def _few_timelines(readers: TimelineReaders) -> Timelines:
    return Timelines(readers, kept_requests=KEPT_TIMELINES, kept_engines=KEPT_TIMELINES)
