"""A day of traffic, compressed, through the autoscaler: engine-hours beside the fewest that could have been enough.

    python -m bench.placement.scaling [--day 900] [--mean 6] [--seeds 2] [--jobs N]

In simulation: Llama-2-13B on one A100 each, conversations, TTFT within 1.5 s and TPOT within 30 ms for nine of ten. The
day is made up: a quiet night, two peaks, and half a minute of three times the load. An engine takes 10 s to start, and
the time that its weights take.

Beside them is what somebody who knows the day could have done with. For each half minute that is as few engines as
keep the promises at its rate, in a simulation of their own, of constant load, with no time lost by starting.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import ceil, cos, pi
from random import Random
from typing import Any

from bench.harness.arguments import script_parser
from bench.harness.jobs import run_jobs
from bench.harness.tables import print_table
from bench.simulated import (
    attainment,
    make_fleet,
    make_simulation,
    mean_engines,
    modelled_engines,
    no_search,
    run_cases,
    serve,
)
from engines.costs.named_profiles import load_profile
from mesh.rules import PlacementMode, ScalingRule
from mesh.topology.schema import PlacementSpec, PolicySpec, ScalingSpec, ServiceSpec, Slo, Topology
from simulation.capacity import find_capacity
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule

PROFILE = "a100-llama2-13b-tp1"
SERVICE = "chat"
SLO = Slo(ttft_s=1.5, tpot_s=0.03, attainment=0.9)
WINDOW_S = 30.0
SIZES = (1, 2, 4, 8)  # of fleets whose capacity is found
TRIAL_S = 120.0
MOST, STARTED, FIXED = 12, 2, 8  # engines: of a fleet that scales, that it begins with, and of one that stays the same
ELASTIC = PolicySpec("elastic")
PROMISES = ScalingSpec(down_after_s=30.0)
RULES: Mapping[str, ScalingSpec | None] = {"promises": PROMISES, f"{FIXED} engines": None} | {
    f"utilisation {share:g}": replace(PROMISES, rule=ScalingRule.UTILISATION, utilisation=share)
    for share in (0.15, 0.2, 0.3)
}


@dataclass(frozen=True, slots=True)
class Day:
    """Requests a second in each window."""

    rates: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return WINDOW_S * len(self.rates)

    def requests(self, seed: int) -> Iterator[TraceRequest]:
        random = Random(f"{seed}/arrivals")
        at, most = 0.0, max(self.rates)
        while (at := at + random.expovariate(most)) < self.seconds:
            if random.random() < self.rates[int(at / WINDOW_S)] / most:
                num_input, num_output = random.lognormvariate(5.5, 0.9), random.lognormvariate(5.0, 0.8)
                yield TraceRequest(at, min(2048, max(8, round(num_input))), min(1024, max(2, round(num_output))))


@dataclass(frozen=True, slots=True)
class Result:
    engine_s: float
    attainment: float
    worst_window: float  # attainment of the requests of one
    num_changes: int  # engines that started, and engines that ended
    num_requests: int


def made_up_day(mean: float, seconds: float) -> Day:
    """A quiet night, two peaks, and one window of three times the load."""
    number = round(seconds / WINDOW_S)
    shape = [1.15 - cos(2 * pi * index / number) * 0.8 - cos(4 * pi * index / number) * 0.25 for index in range(number)]
    shape[number // 3] *= 3
    factor = mean * len(shape) / sum(shape)
    return Day(tuple(factor * rate for rate in shape))


def make_topology(
    size: int, scaling: ScalingSpec | None, num_started: int = STARTED, policy: PolicySpec = ELASTIC
) -> Topology:
    bounds: dict[str, Any] = {"max_running": 256, "max_waiting": 64, "pool": "engine", "at_least": 1}
    started = None if scaling is None else num_started
    engines = modelled_engines(size, SERVICE, PROFILE, num_started=started, **bounds)
    placement = None if scaling is None else PlacementSpec(mode=PlacementMode.OFF)
    service = ServiceSpec(SERVICE, PROFILE, SLO)
    return make_fleet("scaling", service, engines, policy, placement=placement, scaling=scaling)


def simulate(topology: Topology, requests: Iterable[TraceRequest], seconds: float, seed: int) -> Result:
    slo = SloRule(5.0, keeps_traced=True)
    simulation = make_simulation(topology, load_profile(PROFILE), seed, slo=slo, coasts=True, search=no_search)
    records = serve(simulation, SERVICE, requests)
    windows: dict[int, list[bool]] = defaultdict(list)
    for record in records:
        windows[int(record.arrived_s / WINDOW_S)].append(record.meets_slo)
    worst = min((sum(window) / len(window) for window in windows.values() if len(window) >= 10), default=1.0)
    mean, num_changes = mean_engines(simulation, seconds)
    return Result(mean * seconds, attainment(records), worst, num_changes, len(records))


@dataclass(frozen=True, slots=True)
class Case:
    """A day under one of the `RULES`."""

    rule: str
    day: Day
    seed: int


def run_case(case: Case) -> Result:
    scaling = RULES[case.rule]
    topology = make_topology(FIXED if scaling is None else MOST, scaling)
    return simulate(topology, case.day.requests(case.seed), case.day.seconds, case.seed)


# --- who knows the day ------------------------------------------------------------------------------------------------


def capacity_of(size: int) -> float:
    """Return the requests a second at which so many engines keep the promises."""

    def attainment_at(rate: float) -> float:
        day = Day((rate,) * round(TRIAL_S / WINDOW_S))
        return simulate(make_topology(size, None), day.requests(0), day.seconds, 0).attainment

    return find_capacity(attainment_at, SLO.attainment, 2.0 * size, 0.1, most_runs=6).rate


def least_engines(capacities: Mapping[int, float], rate: float) -> int:
    """Go by lines between the sizes whose capacity is known, and beyond the largest."""
    known = list(pairwise([(0, 0.0), *sorted(capacities.items())]))
    (low, low_rate), (high, high_rate) = next((pair for pair in known if rate <= pair[1][1]), known[-1])
    return max(1, ceil(low + (rate - low_rate) * (high - low) / (high_rate - low_rate)))


def main() -> None:
    parser = script_parser("bench.placement.scaling", __doc__, seeds=2, jobs=True)
    parser.add_argument("--day", type=float, default=900.0, metavar="S", help="seconds that it is compressed to")
    parser.add_argument("--mean", type=float, default=6.0, metavar="R", help="requests a second")
    options = parser.parse_args()
    day = made_up_day(options.mean, options.day)
    capacities = dict(zip(SIZES, run_jobs(capacity_of, SIZES, options.jobs, "capacities"), strict=True))
    cases = [Case(rule, day, seed) for rule, seed in product(RULES, range(options.seeds))]
    least_s = sum(WINDOW_S * least_engines(capacities, rate) for rate in day.rates)
    rates = f"{min(day.rates):.1f} to {max(day.rates):.1f} requests/s"
    numbers = ("rule", "seed", "engine-hours", "of the least", "attainment", "worst half minute", "changes")
    rows = [cells(*found, least_s) for found in run_cases(run_case, cases, options.jobs).items()]
    print_table(f"{rates}; who knows the day: {least_s / 3600:.2f} engine-hours", (), numbers, rows)


def cells(case: Case, result: Result, least_s: float) -> list[str]:
    engines = f"{result.engine_s / 3600:.2f}", f"{result.engine_s / least_s:.2f}x"
    kept = f"{result.attainment:.3f}", f"{result.worst_window:.2f}"
    return [case.rule, str(case.seed), *engines, *kept, str(result.num_changes)]


if __name__ == "__main__":
    main()
