"""A day of traffic, compressed, through the autoscaler: engine-hours beside the fewest that could have been enough.

    python -m bench.placement.scaling [--arrivals FILE] [--day 900] [--mean 6] [--most 12]
        [--rules promises utilisation ...] [--seeds 2] [--jobs N]

In simulation: Llama-2-13B on one A100 each, conversations, TTFT within 1.5 s and TPOT within 30 ms for nine of ten. The
rates of the day are those of ServeGen's clients (``arrivals_2days.csv.gz``: ``window_start_s`` and ``rate_rps``), all
of them added up and scaled to the mean; without the file, those of a day made up: a quiet night, two peaks, and half a
minute of three times the load. An engine takes 10 s to start, and the time that its weights take.

Beside them is what somebody who knows the day could have done with: for each half minute as few engines as keep the
promises at its rate in a simulation of their own, of constant load, and no time lost by starting.
"""

import argparse
import csv
import gzip
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import cos, pi
from pathlib import Path
from random import Random

from rich.table import Table

from bench.harness.arguments import add_jobs, add_seeds, script_parser
from bench.harness.jobs import run_jobs
from bench.harness.tables import make_console, make_table
from engines.costs.profiles import load_profile
from mesh.errors import UserError
from mesh.topology.schema import (
    EngineSpec,
    GatewaySpec,
    PlacementMode,
    PlacementSpec,
    PolicySpec,
    ScalingRule,
    ScalingSpec,
    ServiceSpec,
    Slo,
    Topology,
)
from mesh.wire.control import Role
from router.history.records import Record
from router.placement.search.question import Question
from simulation.capacity import find_capacity
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.placement.daemon import SearchResult
from simulation.quiet import quiet_engines

PROFILE = "a100-llama2-13b-tp1"
SERVICE = "chat"
SLO = Slo(ttft_s=1.5, tpot_s=0.03, attainment=0.9)
WINDOW_S = 30.0
SIZES = (1, 2, 4, 8)  # of fleets whose capacity is found
TRIAL_S = 120.0
ELASTIC = PolicySpec("elastic")


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
    number = round(seconds / WINDOW_S)
    shape = [1.15 - cos(2 * pi * index / number) * 0.8 - cos(4 * pi * index / number) * 0.25 for index in range(number)]
    shape[number // 3] *= 3
    return _scaled(shape, mean)


def recorded_day(path: Path, mean: float, seconds: float) -> Day:
    """Raise `UserError` for a file that cannot be read so."""
    totals: dict[float, float] = {}
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            for row in csv.DictReader(file):
                start_s = float(row["window_start_s"])
                if 0 <= start_s < 86_400:
                    totals[start_s] = totals.get(start_s, 0.0) + float(row["rate_rps"])
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{path}: no arrivals of ServeGen ({error}); columns window_start_s and rate_rps") from None
    starts, number = sorted(totals), round(seconds / WINDOW_S)
    if not starts:
        raise UserError(f"{path}: no windows of a first day")
    return _scaled([totals[starts[index * len(starts) // number]] for index in range(number)], mean)


def _scaled(shape: Sequence[float], mean: float) -> Day:
    factor = mean * len(shape) / sum(shape)
    return Day(tuple(factor * rate for rate in shape))


def make_topology(most: int, scaling: ScalingSpec | None, num_started: int, policy: PolicySpec = ELASTIC) -> Topology:
    engines = [
        EngineSpec(
            f"engine-{index:02}",
            Role.MULTIPLEX,
            (SERVICE,),
            backend="simulated",
            profile=PROFILE,
            max_running=256,
            pool="engine",
            at_least=1,
            is_standby=scaling is not None and index >= num_started,
        )
        for index in range(most)
    ]
    return Topology(
        "scaling",
        Path(),
        (ServiceSpec(SERVICE, PROFILE, SLO),),
        tuple(engines),
        (GatewaySpec("gateway", max_requests=100_000, max_waiting=100_000),),
        policy=policy,
        placement=None if scaling is None else PlacementSpec(mode=PlacementMode.OFF),
        scaling=scaling,
    )


def simulate(topology: Topology, requests: Iterator[TraceRequest], seconds: float, seed: int) -> Result:
    profile = load_profile(PROFILE)
    records: list[Record] = []
    simulation = Simulation(
        topology,
        {spec.id: profile for spec in topology.engines},
        seed=seed,
        physics=Physics(),
        slo=SloRule(5.0, keeps_traced=True),
        coasts=True,
        search=never,
    )
    with quiet_engines():
        simulation.run(SERVICE, requests, records.append)
    in_time: dict[int, list[bool]] = {}
    for record in records:
        in_time.setdefault(int(record.arrived_s / WINDOW_S), []).append(record.meets_slo)
    processes = simulation.processes
    supervisors = list(processes.supervisors.values()) if processes is not None else []
    over = sum(supervisor.engine_seconds(seconds) for supervisor in supervisors)
    return Result(
        over if supervisors else len(topology.engines) * seconds,
        sum(record.meets_slo for record in records) / max(1, len(records)),
        min((sum(window) / len(window) for window in in_time.values() if len(window) >= 10), default=1.0),
        sum(supervisor.num_changes for supervisor in supervisors),
        len(records),
    )


def never(question: Question) -> SearchResult:
    """For daemons that do not search."""
    raise AssertionError("plans are off")


def run_rule(rule: str, day: Day, most: int, seed: int) -> Result:
    """``rule``: of the autoscaler, ``utilisation:SHARE``, or a number of engines that stays the same."""
    if rule.isdecimal():
        return simulate(make_topology(int(rule), None, int(rule)), day.requests(seed), day.seconds, seed)
    scaling = make_scaling(rule)
    return simulate(make_topology(most, scaling, 2), day.requests(seed), day.seconds, seed)


def make_scaling(rule: str) -> ScalingSpec:
    """Raise `ValueError` for what is no rule."""
    name, _, share = rule.partition(":")
    spec = ScalingSpec(rule=ScalingRule(name), down_after_s=30.0)
    return replace(spec, utilisation=float(share)) if share else spec


def capacity_of(number: int) -> float:
    """Requests a second at which so many engines keep the promises."""

    def attainment_at(rate: float) -> float:
        day = Day((rate,) * round(TRIAL_S / WINDOW_S))
        return simulate(make_topology(number, None, number), day.requests(0), day.seconds, 0).attainment

    return find_capacity(attainment_at, SLO.attainment, 2.0 * number, 0.1, most_runs=6).rate


def least_engines(capacities: dict[int, float], rate: float) -> int:
    """By lines between the sizes whose capacity is known, and beyond the largest."""
    number = 1
    while _capacity(capacities, number) < rate:
        number += 1
    return number


def _capacity(capacities: dict[int, float], number: int) -> float:
    sizes = sorted(capacities)
    low, high = next((pair for pair in pairwise(sizes) if number <= pair[1]), (sizes[-2], sizes[-1]))
    if number <= sizes[0]:
        return capacities[sizes[0]] * number / sizes[0]
    return capacities[low] + (capacities[high] - capacities[low]) * (number - low) / (high - low)


def main() -> int:
    options = _parse()
    try:
        if options.arrivals is None:
            day = made_up_day(options.mean, options.day)
        else:
            day = recorded_day(options.arrivals, options.mean, options.day)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    console = make_console()
    found = run_jobs(capacity_of, SIZES, options.jobs, "capacities")
    capacities = dict(zip(SIZES, found, strict=True))
    keys = [(rule, seed) for rule in options.rules for seed in range(options.seeds)]
    results = dict(zip(keys, run_jobs(partial(_run, day, options), keys, options.jobs, "days"), strict=True))
    least_s = sum(WINDOW_S * least_engines(capacities, rate) for rate in day.rates)
    console.print(_table(day, capacities, least_s, results))
    return 0


def _run(day: Day, options: argparse.Namespace, key: tuple[str, int]) -> Result:
    """For a pool of processes."""
    rule, seed = key
    return run_rule(rule, day, options.most, seed)


def _table(day: Day, capacities: dict[int, float], least_s: float, results: dict[tuple[str, int], Result]) -> Table:
    known = ", ".join(f"{size}: {rate:.1f}/s" for size, rate in sorted(capacities.items()))
    peak = least_engines(capacities, max(day.rates))
    title = f"{day.seconds:.0f} s, {min(day.rates):.1f} to {max(day.rates):.1f} requests/s; capacity of engines {known}"
    table = make_table(
        f"{title}; who knows the day: {least_s / 3600:.2f} engine-hours, {peak} at the peak",
        (),
        ("rule", "seed", "engine-hours", "of the least", "attainment", "worst half minute", "changes"),
    )
    for (rule, seed), result in results.items():
        table.add_row(
            f"{rule} engines" if rule.isdecimal() else rule,
            str(seed),
            f"{result.engine_s / 3600:.2f}",
            f"{result.engine_s / least_s:.2f}x",
            f"{result.attainment:.3f}",
            f"{result.worst_window:.2f}",
            str(result.num_changes),
        )
    return table


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.placement.scaling", __doc__)
    parser.add_argument("--arrivals", type=Path, metavar="FILE", help="of ServeGen (default: a day that is made up)")
    parser.add_argument("--day", type=float, default=900.0, metavar="S", help="seconds that it is compressed to")
    parser.add_argument("--mean", type=float, default=6.0, metavar="R", help="requests a second")
    parser.add_argument("--most", type=int, default=12, metavar="N", help="engines")
    parser.add_argument(
        "--rules",
        nargs="+",
        default=["promises", "utilisation:0.3", "utilisation:0.2", "utilisation:0.15", "8"],
        metavar="RULE",
        help="promises, utilisation[:SHARE], freeness, or a number of engines that stays the same",
    )
    add_seeds(parser, 2)
    add_jobs(parser)
    options = parser.parse_args()
    for rule in options.rules:
        try:
            _ = rule.isdecimal() or make_scaling(rule)
        except ValueError:
            known = ", ".join(ScalingRule)
            parser.error(f"--rules: {rule!r} is no rule; use {known}, utilisation:0.2 or a number of engines")
    return options


if __name__ == "__main__":
    sys.exit(main())
