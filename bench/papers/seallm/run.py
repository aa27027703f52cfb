"""One run: a system serves a scene under a plan. And what came of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bench import simulated
from bench.papers.seallm import devices
from bench.papers.seallm.plans import Effort, Planner, group_loads, make_plan, planned_for
from bench.papers.seallm.replacing import WithCosts
from bench.papers.seallm.scene import Inputs, Scene, World, make_world
from bench.papers.seallm.systems import SYSTEMS, Testbed, make_testbed
from bench.simulated import make_simulation, percentile
from router.history.records import Outcome, Record
from router.placement.search.plan import Plan
from simulation.loads.trace_request import TraceRequest
from simulation.placement.daemon import ModelledSearch, Search
from simulation.placement.evaluator import LocalSimulators

SCALES = (2.0, 3.0, 5.0, 10.0, 20.0)  # of promises, in execution times


@dataclass(frozen=True, slots=True)
class Result:
    """Latencies are normalised by the mean execution time of the service, or in seconds.

    ``attainment``: the part of all requests that took at most `SLO_FACTOR` times their own execution time.
    ``kept_at``: the same for each of `SCALES`.
    ``num_plans``: that the daemon carried out. ``num_regrouped``: times that engines gave their devices to others.
    """

    num_requests: int
    num_failed: int
    mean: float
    p99: float
    attainment: float
    ttft_s: float
    tpot_s: float
    kept_at: tuple[float, ...] = ()
    num_plans: int = 0
    num_regrouped: int = 0


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
    loads = group_loads(world.catalogue, planned_for(case.planner, world, case.scene, case.effort))
    testbeds = {name: make_testbed(SYSTEMS[name], plan, world, loads) for name in case.systems}
    return {name: serve(testbed, plan, world, case.scene) for name, testbed in testbeds.items()}


def serve(testbed: Testbed, plan: Plan, world: World, scene: Scene) -> Result:
    requests = world.requests(scene)
    placed = [request for request in requests if request.service in plan.services]
    topology = testbed.topology
    search: Search = ModelledSearch(LocalSimulators(devices.SLO_FACTOR))
    notes = list[str]()
    simulation = make_simulation(
        topology,
        testbed.profiles,
        scene.seed,
        physics=testbed.physics,
        coasts=True,
        search=WithCosts(search, testbed.costs) if testbed.costs else search,
        on_note=lambda _, note: notes.append(note.line),
    )
    records = simulated.serve(simulation, topology.services[0].name, placed)
    result = result_of(list(_served(records, placed, world)), len(requests))
    num_plans = sum(line.endswith("is carried out") for line in notes)
    return replace(result, num_plans=num_plans, num_regrouped=sum(": regrouping: " in line for line in notes))


def _served(records: Sequence[Record], requests: Sequence[TraceRequest], world: World) -> Iterator[Served]:
    for record in records:
        if record.outcome is Outcome.FINISHED and record.e2e_s is not None and record.ttft_s is not None:
            alone_s = world.alone_s(requests[int(record.id[1:])])
            yield Served(record.e2e_s, alone_s, world.services[record.service].mean_s, record.ttft_s, record.tpot_s)


def result_of(served: Sequence[Served], num_requests: int) -> Result:
    """Summarize one request or more. Those that were not served count as late, and in no latency."""
    kept_at = [sum(one.latency_s <= scale * one.alone_s for one in served) / num_requests for scale in SCALES]
    return Result(
        num_requests=num_requests,
        num_failed=num_requests - len(served),
        mean=fmean(one.normalised for one in served),
        p99=percentile((one.normalised for one in served), 99),
        attainment=sum(one.latency_s <= devices.SLO_FACTOR * one.alone_s for one in served) / num_requests,
        ttft_s=fmean(one.ttft_s for one in served),
        tpot_s=fmean([one.tpot_s for one in served if one.tpot_s is not None] or [0.0]),
        kept_at=tuple(kept_at),
    )
