"""The systems that are compared, and the engines of each under a plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf
from statistics import fmean
from typing import Any

from bench.papers.seallm import devices
from bench.papers.seallm.multiplexing import (
    Quotas,
    memory_quotas,
    shared_profile,
    sm_quotas,
    split_profile,
)
from bench.papers.seallm.plans import Loads, Planner
from bench.papers.seallm.replacing import Replaceable, engine_id, regrouping
from bench.papers.seallm.scene import Service, World
from bench.simulated import MANY, make_fleet
from mesh.topology.schema import EngineSpec, PlacementSpec, PolicySpec, Scheduling, ServiceSpec, Slo, Topology
from mesh.topology.timing import Timing
from mesh.wire.control import Role
from router.placement.search.plan import Group, Plan
from simulation.engines.physics import Physics, SmQuota
from simulation.engines.shared_profiles import Profile, SharedProfile
from simulation.placement.evaluator import TIMING

MAX_RUNNING, CHUNK_TOKENS = 128, 2048
PATIENT = Slo(1e6, 1e3)  # where a gateway would refuse what waits long for memory, MuxServe lets it wait


@dataclass(frozen=True, slots=True)
class System:
    """Who places services, whose turn it is on an engine, and where a request goes.

    ``quotas``: what services that share devices have parts of. ``is_strict``: a request does not join the batch of its
    service while one that ranks before it decodes, as the paper's algorithm 2 has it. ``is_replaced``: the placement
    daemon changes the plan meanwhile, as far as engines that stay can take services in; where it ``regroups``, they
    need not stay.
    """

    planner: Planner
    scheduling: Scheduling
    policy: str = "join_shortest_queue"
    quotas: Quotas = Quotas.NONE
    is_strict: bool = False
    is_replaced: bool = False
    regroups: bool = False


OURS = "ours"
SYSTEMS = {
    OURS: System(Planner.SEARCH, Scheduling.DB),
    "dedicated": System(Planner.DEDICATED, Scheduling.SLO, policy="colocated"),
    "alpaserve": System(Planner.ALPASERVE, Scheduling.FCFS),
    "alpaserve, strict": System(Planner.ALPASERVE, Scheduling.FCFS, is_strict=True),
    "muxserve": System(Planner.MUXSERVE, Scheduling.SLO, "disaggregated", Quotas.SHARES),
    "muxserve, turns": System(Planner.MUXSERVE, Scheduling.ROUND_ROBIN, quotas=Quotas.MEMORY),
    "ours-F": System(Planner.SEARCH, Scheduling.FCFS),
    "ours-F, strict": System(Planner.SEARCH, Scheduling.FCFS, is_strict=True),
    "ours-M": System(Planner.SEARCH, Scheduling.MLFQ),
    "foreseen": System(Planner.FORESEEN, Scheduling.DB),
    "ours-P": System(Planner.DEDICATED, Scheduling.DB),
    "ours-A": System(Planner.FIRST, Scheduling.DB),
    "ours-A, replaced": System(Planner.FIRST, Scheduling.DB, is_replaced=True),
    "ours-A, regrouped": System(Planner.FIRST, Scheduling.DB, is_replaced=True, regroups=True),
    "replaced": System(Planner.SEARCH, Scheduling.DB, is_replaced=True),
    "regrouped": System(Planner.SEARCH, Scheduling.DB, is_replaced=True, regroups=True),
}
LINK_BYTES_PER_S = 20e9  # from its host's memory to a device: `simulation.engines.physics`
NEWS = Timing(heartbeat_s=1.0, lease_s=5.0, reply_s=5.0)  # for a daemon, near a large mesh's
WHEN_REPLACED = PlacementSpec(interval_s=60.0, shortest_s=30.0, longest_s=240.0)


@dataclass(frozen=True, slots=True)
class Testbed:
    """A topology with the profiles of its engines, and what engines on the same devices do to each other.

    ``costs``: what the daemon is told of services, by engine; empty: what engines learn.
    """

    topology: Topology
    profiles: Mapping[str, Profile]
    physics: Physics
    costs: Mapping[str, SharedProfile] = field(default_factory=dict)


def make_testbed(system: System, plan: Plan, world: World, loads: Loads) -> Testbed:
    """Make an engine of each group of the plan that holds anything; with quotas of SMs, two of each service of
    it, between which KV stays where it is."""
    groups = [group for group in plan.groups if group.services]
    slo = PATIENT if system.quotas is Quotas.SHARES else devices.SLO
    services = [_service(world.services[name], slo) for name in sorted(plan.services)]
    engines, profiles, quotas = list[EngineSpec](), dict[str, Profile](), dict[str, SmQuota]()
    replaceable = _replaceable(groups, system, world)
    for one in replaceable:
        name = engine_id(one.group)
        engines.append(_engine(name, one.group.role, one.group.services, system, **one.settings))
        profiles[name] = one.profile
    for group in [] if replaceable else groups:
        name = engine_id(group)
        if system.quotas is Quotas.SHARES:
            for process in _processes(name, group, system, world, loads):
                engines.append(process.engine)
                profiles[process.engine.id], quotas[process.engine.id] = process.profile, process.quota
        else:
            kv_quotas = memory_quotas(group, world) if system.quotas is Quotas.MEMORY else {}
            engines.append(_engine(name, group.role, group.services, system, kv_quotas=kv_quotas))
            profiles[name] = shared_profile(group, world)
    placement, timing = (WHEN_REPLACED, NEWS) if system.is_replaced else (None, TIMING)
    policy = PolicySpec(system.policy)
    topology = make_fleet("testbed", services, engines, policy, timing=timing, placement=placement)
    physics = Physics(kv_bytes_per_s=inf, kv_message_s=0.0, sm_quotas=quotas) if quotas else Physics()
    if not system.regroups:
        return Testbed(topology, profiles, physics)
    told = {engine_id(one.group): one.profile for one in replaceable}
    return Testbed(topology, profiles, replace(physics, weight_bytes_per_s=LINK_BYTES_PER_S), told)


def _replaceable(groups: Sequence[Group], system: System, world: World) -> list[Replaceable]:
    if not system.is_replaced:
        return []
    return list(regrouping(groups, world)) if system.regroups else [Replaceable.of(group, world) for group in groups]


@dataclass(frozen=True, slots=True)
class _Process:
    """A service's process for a phase, with its parts of the devices."""

    engine: EngineSpec
    profile: Profile
    quota: SmQuota


def _processes(name: str, group: Group, system: System, world: World, loads: Loads) -> Iterator[_Process]:
    """One for prompts and one for decodes of each service. They have one KV memory: each may fill all of it here."""
    parts, quotas = memory_quotas(group, world), sm_quotas(group, loads)
    for (service, quota), role in product(quotas.items(), (Role.PREFILL, Role.MULTIPLEX)):
        engine = _engine(f"{name}-{service}-{role}", role, (service,), system, host=name)
        yield _Process(engine, split_profile(group, world, service, parts[service], quota), quota)


def _engine(name: str, role: Role, services: tuple[str, ...], system: System, **settings: Any) -> EngineSpec:
    return EngineSpec(
        name,
        role,
        services,
        max_running=MAX_RUNNING,
        max_waiting=MANY,
        chunk_tokens=CHUNK_TOKENS,
        scheduling=system.scheduling,
        strict_phases=system.is_strict,
        **settings,
    )


def _service(service: Service, slo: Slo) -> ServiceSpec:
    """Tell its usual lengths, as SeaLLM profiles services and those that plan have seen their traffic."""
    prompt, answer = (
        round(fmean(getattr(request, which) for request in service.lengths)) for which in ("num_input", "num_output")
    )
    return ServiceSpec(service.name, service.model, slo, usual_prompt=prompt, usual_answer=answer)
