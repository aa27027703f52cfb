"""One run: a system serves a scene under a plan. And what came of it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import msgspec

from bench.papers import runs
from bench.papers.runs import make_simulation, percentile
from bench.papers.seallm.testbed.foreseeing import Foreseeing
from bench.papers.seallm.testbed.scene import Scene, Service, World
from bench.papers.seallm.testbed.systems import Replacement, System
from bench.placement import setting
from bench.placement.log import Change, PlacementLog, Told
from mesh.topology.schema import EngineSpec, GatewaySpec, PlacementSpec, PolicySpec, ServiceSpec, Timing, Topology
from router.history.records import Outcome, Record
from router.placement.observe.requirements import Catalogue
from router.placement.search.plan import Group, Plan
from simulation.engines.shared_profiles import Profile, SharedProfile
from simulation.loads.trace_request import TraceRequest
from simulation.placement.daemon import ModelledSearch, Search
from simulation.placement.evaluator import MANY, TIMING, LocalSimulators

MAX_RUNNING, CHUNK_TOKENS = 128, 2048
DAEMON_TIMING = Timing(heartbeat_s=1.0, lease_s=5.0)  # a daemon listens for a lease before its first interval
INTERVAL_S = 60.0  # between two decisions, at first
FORESEEN_S = 50.0  # between two decisions of a daemon that knows what comes until the next one
SEARCH_BATCHES = 2  # of local search, when services are placed anew
ROOM_FOR_WEIGHTS = 0.6  # of an engine's memory, where services come and go
SLO_SCALES = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0)


class Result(msgspec.Struct, frozen=True):
    """Latencies are normalised by the mean execution time of the service, or in seconds.

    ``attainment``: the part of all requests that took at most `SLO_FACTOR` times their own execution time.
    ``by_scale``: the parts that took at most so many times the mean of their service. ``by_service``: mean normalised
    latencies.
    """

    num_requests: int
    num_failed: int
    mean: float
    p99: float
    p99_s: float
    attainment: float
    ttft_s: float
    tpot_s: float
    by_scale: dict[float, float]
    by_service: dict[str, float]
    decisions: list[Told] = []  # of the placement daemon, if there was one
    changes: list[Change] = []  # of the plan


@dataclass(frozen=True, slots=True)
class Served:
    """A request that was answered, and what it takes alone."""

    service: str
    latency_s: float
    alone_s: float
    mean_s: float  # of its service
    ttft_s: float
    tpot_s: float | None

    @property
    def normalised(self) -> float:
        return self.latency_s / self.mean_s


def serve(system: System, plan: Plan, world: World, scene: Scene) -> Result:
    requests = world.requests(scene)
    placed = [request for request in requests if request.service in plan.services]
    topology, profiles = make_topology(system, plan, world)
    search: Search = ModelledSearch(LocalSimulators(setting.SLO_FACTOR), SEARCH_BATCHES)
    if system.replacement is Replacement.FORESEEN:
        search = Foreseeing(search, placed, FORESEEN_S, lambda: simulation.kernel.now)
    simulation = make_simulation(topology, profiles, scene.seed, coasts=True, search=search)
    log = PlacementLog()
    log.attach(simulation)
    records = runs.serve(simulation, topology.services[0].name, placed)
    result = result_of(list(_served(records, placed, world)), len(requests))
    return msgspec.structs.replace(result, decisions=log.decisions, changes=log.changes)


def _served(records: Sequence[Record], requests: Sequence[TraceRequest], world: World) -> Iterator[Served]:
    for record in records:
        if record.outcome is Outcome.FINISHED and record.e2e_s is not None and record.ttft_s is not None:
            alone_s = world.alone_s(requests[int(record.id[1:])])
            mean_s = world.services[record.service].mean_s
            yield Served(record.service, record.e2e_s, alone_s, mean_s, record.ttft_s, record.tpot_s)


def result_of(served: Sequence[Served], num_requests: int) -> Result:
    """Summarize one request or more. Those that were not served count as late, and in no latency."""
    by_service: dict[str, list[float]] = defaultdict(list)
    for one in served:
        by_service[one.service].append(one.normalised)
    return Result(
        num_requests=num_requests,
        num_failed=num_requests - len(served),
        mean=fmean(one.normalised for one in served),
        p99=percentile((one.normalised for one in served), 99),
        p99_s=percentile((one.latency_s for one in served), 99),
        attainment=sum(one.latency_s <= setting.SLO_FACTOR * one.alone_s for one in served) / num_requests,
        ttft_s=fmean(one.ttft_s for one in served),
        tpot_s=fmean([one.tpot_s for one in served if one.tpot_s is not None] or [0.0]),
        by_scale={scale: sum(one.normalised <= scale for one in served) / num_requests for scale in SLO_SCALES},
        by_service={name: fmean(latencies) for name, latencies in sorted(by_service.items())},
    )


# --- engines ----------------------------------------------------------------------------------------------------------


def make_topology(system: System, plan: Plan, world: World) -> tuple[Topology, Mapping[str, Profile]]:
    """Make an engine of each group of the plan that holds anything."""
    groups = [group for group in plan.groups if group.services]
    engines = tuple(_engine(system, group, world) for group in groups)
    profiles = {
        engine.id: _profile(system, group, world.catalogue) for engine, group in zip(engines, groups, strict=True)
    }
    services = tuple(_service(world.services[name]) for name in sorted(plan.services))
    gateway = GatewaySpec("gateway", max_requests=MANY, max_waiting=MANY)
    policy, placement = PolicySpec(system.policy), _placement(system)
    timing = TIMING if placement is None else DAEMON_TIMING
    topology = Topology(
        "testbed", Path(), services, engines, (gateway,), policy=policy, timing=timing, placement=placement
    )
    return topology, profiles


def _placement(system: System) -> PlacementSpec | None:
    match system.replacement:
        case Replacement.FORESEEN:
            return PlacementSpec(interval_s=FORESEEN_S, shortest_s=FORESEEN_S, longest_s=FORESEEN_S)
        case Replacement.ADAPTIVE:
            return PlacementSpec(interval_s=INTERVAL_S)
        case _:
            return None


def _service(service: Service) -> ServiceSpec:
    """Tell its usual lengths, as SeaLLM profiles services and those that plan have seen their traffic."""
    prompt, answer = (
        round(fmean(getattr(request, which) for request in service.lengths)) for which in ("num_input", "num_output")
    )
    return ServiceSpec(service.name, service.model, setting.SLO, usual_prompt=prompt, usual_answer=answer)


def _engine(system: System, group: Group, world: World) -> EngineSpec:
    return EngineSpec(
        group.id.replace("/", "-"),
        group.role,
        group.services,
        max_running=MAX_RUNNING,
        max_waiting=MANY,
        chunk_tokens=CHUNK_TOKENS,
        scheduling=system.scheduling,
        strict_phases=system.is_strict,
        kv_quotas=quotas(group, world) if system.has_quotas else {},
        weight_memory_bytes=None if system.replacement is None else _weight_room(group, world.catalogue),
    )


def _profile(system: System, group: Group, catalogue: Catalogue) -> Profile:
    held = SharedProfile.of({name: catalogue.profile(name, group.num_devices) for name in group.services})
    if system.replacement is None:
        return held
    room = _weight_room(group, catalogue)
    loadable = {
        name: by_size[group.num_devices].profile
        for name, by_size in catalogue.footprints.items()
        if group.num_devices in by_size and by_size[group.num_devices].profile.weight_bytes <= room
    }
    return SharedProfile(loadable, _memory_bytes(group, catalogue) - room, group.num_devices)


def _weight_room(group: Group, catalogue: Catalogue) -> int:
    held = sum(catalogue.profile(name, group.num_devices).weight_bytes for name in group.services)
    return max(held, int(ROOM_FOR_WEIGHTS * _memory_bytes(group, catalogue)))


def _memory_bytes(group: Group, catalogue: Catalogue) -> int:
    profile = catalogue.profile(group.services[0], group.num_devices)
    return profile.kv_memory_bytes + profile.weight_bytes


def quotas(group: Group, world: World) -> dict[str, float]:
    """Give each service room for a longest request in KV memory, and a part of the rest by what is asked of it."""
    catalogue = world.catalogue
    memory = SharedProfile.of({name: catalogue.profile(name, group.num_devices) for name in group.services})
    least = {name: catalogue.footprints[name][group.num_devices].kv_bytes for name in group.services}
    wanted = {name: _kv_rate(world.services[name], catalogue, group.num_devices) for name in group.services}
    rest = max(0, memory.kv_memory_bytes - sum(least.values()))
    shares = {name: least[name] + rest * wanted[name] / sum(wanted.values()) for name in group.services}
    return {name: share / sum(shares.values()) for name, share in shares.items()}


def _kv_rate(service: Service, catalogue: Catalogue, num_devices: int) -> float:
    """Return the bytes of KV that are asked for, in any unit of time."""
    tokens = fmean(request.num_input + request.num_output for request in service.lengths)
    return service.weight * tokens * catalogue.profile(service.name, num_devices).kv_bytes_per_token
