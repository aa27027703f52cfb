"""Plans while traffic changes: how often they are replaced, and how soon attainment is back after a shift.

    python -m bench.placement_shift [--devices 4] [--services 3] [--rate 24] [--intervals 20] [--shift-at 10]
        [--interval-s 20] [--seeds 3] [--batches 6] [--jobs 2] [--out FILE]

Traffic is drawn anew for each interval; from ``--shift-at`` on, the services change their rates with each other, the
busiest with the rarest. At the end of each interval a plan is searched for its traffic and proposed; the plan that is
in force then serves the next interval. ``--shift-at 0``: nothing shifts. Intervals keep their length here, and what
equation 8 would make of it is told. Loading weights takes no time; it counts when plans are compared.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import msgspec
from rich.console import Console
from rich.table import Table

from bench import placement_setting as setting
from bench.simulation.placing import Simulators
from router.placement.catalogue import Catalogue, Cluster
from router.placement.interval import ReplacementInterval, Threshold
from router.placement.replacement import EvaluatorFor, Replacement, Verdict
from router.placement.search import search
from router.placement.traffic import ServiceTraffic, Traffic


@dataclass(frozen=True, slots=True)
class Step:
    """An interval: what its plan brought, what the best plan for it would have, and what was decided at its end."""

    plan: int
    achieved: float
    latency: float
    within_reach: float
    verdict: Verdict
    num_loads: int
    next_interval_s: float


def play(
    traffics: Sequence[Traffic],
    cluster: Cluster,
    catalogue: Catalogue,
    evaluator_for: EvaluatorFor,
    is_over: Callable[[int], bool],
    seed: int,
) -> Iterator[Step]:
    """The first traffic is that of before the first interval: the first plan is made for it."""
    first = search(cluster, catalogue, traffics[0], evaluator_for(traffics[0]), Random(seed), is_over).best
    interval = ReplacementInterval(60.0, 10.0, 600.0)
    replacement = Replacement(first.plan, interval, Threshold(), seed)
    for number, traffic in enumerate(traffics[1:], 1):
        evaluator, plan = evaluator_for(traffic), replacement.plan
        [achieved] = evaluator.exact([plan])
        next_interval_s = replacement.achieved(achieved)
        found = search(cluster, catalogue, traffic, evaluator, Random(f"{seed}/{number}"), is_over, plan)
        proposal = replacement.decide(found.best.plan, traffic, evaluator_for)
        yield Step(
            plan.number,
            achieved.attainment,
            achieved.normalized_latency,
            found.best.score.attainment,
            proposal.verdict,
            proposal.num_loads if proposal.verdict is Verdict.REPLACE else 0,
            next_interval_s,
        )


def shifting(
    services: Sequence[str], rate: float, interval_s: float, num_intervals: int, shift_at: int, seed: int
) -> list[Traffic]:
    """One more than intervals. Rates before and after are the same, for other services."""
    before = setting.traffic(list(services), rate, interval_s, Random(f"{seed}/rates"))
    by_rate = sorted(services, key=before.rate)
    partner = dict(zip(by_rate, reversed(by_rate), strict=True))
    traffics = []
    for number in range(num_intervals + 1):
        has_shifted = 0 < shift_at <= number
        rates = {name: before.rate(partner[name] if has_shifted else name) for name in services}
        random = Random(f"{seed}/{number}")
        drawn = {
            name: ServiceTraffic(rates[name], asked.num_input, asked.num_output).arrivals(interval_s, random)
            for name, asked in before.services.items()
        }
        traffics.append(Traffic.recorded(drawn, interval_s))
    return traffics


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.placement_shift", description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=4, metavar="N")
    parser.add_argument("--services", type=int, default=3, metavar="N")
    parser.add_argument("--rate", type=float, default=24.0, metavar="R", help="requests a second, of all services")
    parser.add_argument("--intervals", type=int, default=20, metavar="N")
    parser.add_argument("--shift-at", type=int, default=10, metavar="N", help="the first interval after the shift")
    parser.add_argument("--interval-s", type=float, default=20.0, metavar="S")
    parser.add_argument("--batches", type=int, default=6, metavar="N", help="of local search")
    parser.add_argument("--seeds", type=int, default=3, metavar="N")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="worker processes")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the steps of all seeds as JSON there")
    options = parser.parse_args()
    console, runs = Console(width=120), {}
    with Simulators(options.jobs) as simulators:
        for seed in range(options.seeds):
            runs[seed] = list(_run(simulators, options, seed))
            console.print(_table(seed, runs[seed]))
    if options.out is not None:
        steps = {seed: [asdict(step) for step in run] for seed, run in runs.items()}
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode(steps)))


def _run(simulators: Simulators, options: argparse.Namespace, seed: int) -> Iterator[Step]:
    models = setting.services(options.services, setting.MODELS[:3])
    catalogue, cluster = setting.catalogue(models), setting.cluster(options.devices)
    slos = dict.fromkeys(models, setting.SLO)
    traffics = shifting(list(models), options.rate, options.interval_s, options.intervals, options.shift_at, seed)
    return play(
        traffics,
        cluster,
        catalogue,
        lambda traffic: simulators.evaluator(catalogue, traffic, slos, slo_factor=setting.SLO_FACTOR, seed=seed),
        lambda done: done >= options.batches,
        seed,
    )


def _table(seed: int, steps: Sequence[Step]) -> Table:
    table = Table(title=f"seed {seed}: attainment", title_justify="left")
    for heading in ("interval", "plan", "achieved", "latency", "within reach", "at its end", "loads", "next interval"):
        table.add_column(heading, justify="right")
    for number, step in enumerate(steps, 1):
        numbers = (f"{step.achieved:.3f}", f"{step.latency:.2f}", f"{step.within_reach:.3f}")
        told = (step.verdict, str(step.num_loads), f"{step.next_interval_s:.0f} s")
        table.add_row(str(number), str(step.plan), *numbers, *told)
    return table


if __name__ == "__main__":
    main()
