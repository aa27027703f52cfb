"""What simulated benches share: fleets of modelled engines, and runs of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from bench.harness.jobs import run_jobs
from mesh.jobs.runner import JobPlace
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Topology
from mesh.wire.control import Role
from router.history.records import Record
from router.placement.search.question import Question
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import Profile
from simulation.garbage import rare_collections
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.placement.daemon import SearchResult
from simulation.quiet import quiet_engines

MANY = 1_000_000  # requests: nobody is refused

CaseT = TypeVar("CaseT")
ResultT = TypeVar("ResultT")


def modelled_engine(
    name: str, service: str, profile: str, *, role: Role = Role.MULTIPLEX, max_waiting: int = MANY, **settings: Any
) -> EngineSpec:
    """An engine that takes the time of a profile, and lets any number of requests wait unless it is told otherwise."""
    spec = EngineSpec(name, role, (service,), backend="simulated", profile=profile, max_waiting=max_waiting)
    return replace(spec, **settings)


def modelled_engines(
    count: int, service: str, profile: str, *, num_prefill: int = 0, num_started: int | None = None, **settings: Any
) -> list[EngineSpec]:
    """Engines alike, but the first ones may be for prefills, and those that are not started are on standby."""
    return [
        modelled_engine(
            f"engine-{number:02}",
            service,
            profile,
            role=Role.PREFILL if number < num_prefill else Role.MULTIPLEX,
            is_standby=num_started is not None and number >= num_started,
            **settings,
        )
        for number in range(count)
    ]


def make_fleet(
    name: str,
    services: ServiceSpec | Iterable[ServiceSpec],
    engines: Iterable[EngineSpec],
    policy: PolicySpec,
    **settings: Any,
) -> Topology:
    """A topology of one service, or several, whose gateway refuses nobody."""
    gateway = GatewaySpec("gateway", max_requests=MANY, max_waiting=MANY)
    served = (services,) if isinstance(services, ServiceSpec) else tuple(services)
    return Topology(name, Path(), served, tuple(engines), (gateway,), policy=policy, **settings)


def make_simulation(
    topology: Topology,
    profiles: Profile | Mapping[str, Profile],
    seed: int,
    *,
    physics: Physics | None = None,
    slo: SloRule | None = None,
    **settings: Any,
) -> Simulation:
    """Wire a simulation with ``profiles`` by engine, or one for all of them. SLOs are the service's by default."""
    if not isinstance(profiles, Mapping):
        profiles = dict.fromkeys([engine.id for engine in topology.engines], profiles)
    return Simulation(topology, profiles, seed=seed, physics=physics or Physics(), slo=slo or SloRule(), **settings)


def arriving(lengths: Sequence[TraceRequest], rate: float, count: int, random: Random) -> list[TraceRequest]:
    """Draw requests of these lengths, and their times: Poisson, so many a second."""
    return list(islice(synthesize(lengths, Arrivals(rate), inf, random), count))


def serve(simulation: Simulation, service: str, requests: Iterable[TraceRequest]) -> list[Record]:
    """Return the records of all requests, once the last has ended."""
    records: list[Record] = []
    serve_each(simulation, service, requests, records.append)
    return records


def serve_each(
    simulation: Simulation, service: str, requests: Iterable[TraceRequest], on_record: Callable[[Record], None]
) -> None:
    """Do as `serve` for more requests than are to be kept: each record goes to ``on_record``."""
    with rare_collections(), quiet_engines():
        simulation.run(service, requests, on_record)


def mean_engines(simulation: Simulation, span_s: float) -> tuple[float, int]:
    """Return how many engines ran on average, and how many were started or ended meanwhile."""
    supervisors = [] if simulation.processes is None else simulation.processes.supervisors.values()
    if not supervisors:
        return float(len(simulation.engines)), 0
    return sum(one.engine_seconds(span_s) for one in supervisors) / span_s, sum(one.num_changes for one in supervisors)


def no_search(question: Question) -> SearchResult:
    """Stands for the search of a placement daemon whose plans are off."""
    raise AssertionError("plans are off")


def attainment(records: Sequence[Record]) -> float:
    """Return the share of the requests that met both promises."""
    return sum(record.meets_slo for record in records) / max(1, len(records))


def run_cases(work: Callable[[CaseT], ResultT], cases: Sequence[CaseT], place: JobPlace) -> dict[CaseT, ResultT]:
    """Return the result of each case."""
    return dict(zip(cases, run_jobs(work, cases, place), strict=True))


def percentile(values: Iterable[float], percent: int) -> float:
    """Return the least of the values that ``percent`` of all values are below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, percent * len(ordered) // 100)]
