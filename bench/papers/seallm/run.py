"""One run: a system serves a scene under a plan. And what came of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench import simulated
from bench.papers.seallm.plans import Effort, Planner, make_plan
from bench.papers.seallm.scene import Inputs, Scene, Service, World, make_world
from bench.placement import setting
from bench.simulated import MANY, make_simulation, percentile
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, Scheduling, ServiceSpec, Topology
from router.history.records import Outcome, Record
from router.placement.search.plan import Group, Plan
from simulation.engines.shared_profiles import SharedProfile
from simulation.loads.trace_request import TraceRequest
from simulation.placement.evaluator import TIMING

MAX_RUNNING, CHUNK_TOKENS = 128, 2048


@dataclass(frozen=True, slots=True)
class System:
    """Who places services, whose turn it is on an engine, and where a request goes.

    ``has_quotas``: services have parts of an engine's KV memory, and no more.
    """

    planner: Planner
    scheduling: Scheduling
    policy: str = "join_shortest_queue"
    has_quotas: bool = False


OURS = "ours"
SYSTEMS = {
    OURS: System(Planner.SEARCH, Scheduling.DB),
    "dedicated": System(Planner.DEDICATED, Scheduling.SLO, policy="colocated"),
    "alpaserve": System(Planner.ALPASERVE, Scheduling.FCFS),
    "muxserve": System(Planner.MUXSERVE, Scheduling.ROUND_ROBIN, has_quotas=True),
    "-F": System(Planner.SEARCH, Scheduling.FCFS),
    "-M": System(Planner.SEARCH, Scheduling.MLFQ),
    "-P": System(Planner.DEDICATED, Scheduling.DB),
}


@dataclass(frozen=True, slots=True)
class Result:
    """Latencies are normalised by the mean execution time of the service, or in seconds.

    ``attainment``: the part of all requests that took at most `SLO_FACTOR` times their own execution time.
    """

    num_requests: int
    num_failed: int
    mean: float
    p99: float
    attainment: float
    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class Served:
    """A request that was answered, and what it takes alone."""

    latency_s: float
    alone_s: float
    mean_s: float  # of its service
    ttft_s: float
    tpot_s: float | None

    @property
    def normalised(self) -> float:
        return self.latency_s / self.mean_s


@dataclass(frozen=True, slots=True)
class Case:
    """A plan for a scene, and the systems that share it: what a worker process does."""

    planner: Planner
    systems: tuple[str, ...]
    inputs: Inputs
    scene: Scene
    effort: Effort


def run_case(case: Case) -> dict[str, Result]:
    """Return the result of each system."""
    world = make_world(case.inputs)
    plan = make_plan(case.planner, world, case.scene, case.effort)
    return {name: serve(SYSTEMS[name], plan, world, case.scene) for name in case.systems}


def serve(system: System, plan: Plan, world: World, scene: Scene) -> Result:
    requests = world.requests(scene)
    placed = [request for request in requests if request.service in plan.services]
    topology, profiles = make_topology(system, plan, world)
    simulation = make_simulation(topology, profiles, scene.seed, coasts=True)
    records = simulated.serve(simulation, topology.services[0].name, placed)
    return result_of(list(_served(records, placed, world)), len(requests))


def _served(records: Sequence[Record], requests: Sequence[TraceRequest], world: World) -> Iterator[Served]:
    for record in records:
        if record.outcome is Outcome.FINISHED and record.e2e_s is not None and record.ttft_s is not None:
            alone_s = world.alone_s(requests[int(record.id[1:])])
            yield Served(record.e2e_s, alone_s, world.services[record.service].mean_s, record.ttft_s, record.tpot_s)


def result_of(served: Sequence[Served], num_requests: int) -> Result:
    """Summarize one request or more. Those that were not served count as late, and in no latency."""
    return Result(
        num_requests=num_requests,
        num_failed=num_requests - len(served),
        mean=fmean(one.normalised for one in served),
        p99=percentile((one.normalised for one in served), 99),
        attainment=sum(one.latency_s <= setting.SLO_FACTOR * one.alone_s for one in served) / num_requests,
        ttft_s=fmean(one.ttft_s for one in served),
        tpot_s=fmean([one.tpot_s for one in served if one.tpot_s is not None] or [0.0]),
    )


# --- engines ----------------------------------------------------------------------------------------------------------


def make_topology(system: System, plan: Plan, world: World) -> tuple[Topology, Mapping[str, SharedProfile]]:
    """Make an engine of each group of the plan that holds anything."""
    groups = {group.id.replace("/", "-"): group for group in plan.groups if group.services}
    engines = tuple(
        EngineSpec(
            name,
            group.role,
            group.services,
            max_running=MAX_RUNNING,
            max_waiting=MANY,
            chunk_tokens=CHUNK_TOKENS,
            scheduling=system.scheduling,
            kv_quotas=quotas(group, world) if system.has_quotas else {},
        )
        for name, group in groups.items()
    )
    services = tuple(_service(world.services[name]) for name in sorted(plan.services))
    gateway = GatewaySpec("gateway", max_requests=MANY, max_waiting=MANY)
    policy = PolicySpec(system.policy)
    topology = Topology("testbed", Path(), services, engines, (gateway,), policy=policy, timing=TIMING)
    return topology, {name: _profile(group, world) for name, group in groups.items()}


def _service(service: Service) -> ServiceSpec:
    """Tell its usual lengths, as SeaLLM profiles services and those that plan have seen their traffic."""
    prompt, answer = (
        round(fmean(getattr(request, which) for request in service.lengths)) for which in ("num_input", "num_output")
    )
    return ServiceSpec(service.name, service.model, setting.SLO, usual_prompt=prompt, usual_answer=answer)


def _profile(group: Group, world: World) -> SharedProfile:
    return SharedProfile.of({name: world.catalogue.profile(name, group.num_devices) for name in group.services})


def quotas(group: Group, world: World) -> dict[str, float]:
    """Give each service room for a longest request in KV memory, and a part of the rest by what is asked of it."""
    least = {name: world.catalogue.footprints[name][group.num_devices].kv_bytes for name in group.services}
    wanted = {name: _kv_rate(world.services[name], world, group.num_devices) for name in group.services}
    rest = max(0, _profile(group, world).kv_memory_bytes - sum(least.values()))
    shares = {name: least[name] + rest * wanted[name] / sum(wanted.values()) for name in group.services}
    return {name: share / sum(shares.values()) for name, share in shares.items()}


def _kv_rate(service: Service, world: World, num_devices: int) -> float:
    """Return the bytes of KV that are asked for, in any unit of time."""
    tokens = fmean(request.num_input + request.num_output for request in service.lengths)
    return service.weight * tokens * world.catalogue.profile(service.name, num_devices).kv_bytes_per_token
