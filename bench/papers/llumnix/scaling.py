"""Llumnix's auto-scaling in simulation: the engines that it takes, against the latency that they give.

    python -m bench.papers.llumnix.scaling [--lengths L-L] [--rates 1.0 1.6] [--seconds 600] [--freeness 10 40 80 160]
        [--seeds 1] [--jobs N]

Engines start where mean freeness is below a bound, and end where it is above that bound and 50 more (section 4.4 of the
paper); 16 at most, A10s with Llama 7B. INFaaS's dispatch is beside Llumnix's with rescheduling. The higher the bound,
the more engines and the lower the latency: what counts is how many engines are up on average where the P99 of TTFT is
the same, on the line between two bounds. The paper: up to 36 % fewer.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log
from statistics import fmean

from rich.table import Table

from bench.harness.arguments import add_jobs, add_seeds, script_parser
from bench.harness.tables import make_console, make_table
from bench.papers.llumnix.setting import (
    INFAAS,
    LLUMNIX,
    NUM_ENGINES,
    PHYSICS,
    SERVICE,
    Contender,
    Load,
    make_profile,
    make_topology,
)
from bench.papers.runs import make_simulation, percentile, run_cases, serve
from bench.placement.scaling import never
from mesh.topology.schema import PlacementMode, PlacementSpec, ScalingRule, ScalingSpec, Topology

BETWEEN = 50.0  # of freeness, between the two bounds
NUM_STARTED = 4
CONTENDERS = (INFAAS, LLUMNIX)


@dataclass(frozen=True, slots=True)
class Case:
    contender: Contender
    load: Load
    low_freeness: float
    seconds: float
    seed: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """``engines``: how many are up on average. TTFT is in seconds."""

    engines: float
    ttft_mean: float
    ttft_p99: float


def scaled(topology: Topology, low_freeness: float) -> Topology:
    """Make the engines one pool, of which few start."""
    engines = [
        replace(spec, pool="engine", is_standby=index >= NUM_STARTED) for index, spec in enumerate(topology.engines)
    ]
    scaling = ScalingSpec(
        rule=ScalingRule.FREENESS, low_freeness=low_freeness, high_freeness=low_freeness + BETWEEN, down_after_s=30.0
    )
    placement = PlacementSpec(mode=PlacementMode.OFF)
    return replace(topology, engines=tuple(engines), scaling=scaling, placement=placement)


def run_case(case: Case) -> Outcome:
    requests = case.load.requests(round(case.load.rate * case.seconds), case.seed)
    topology = scaled(make_topology(case.contender, NUM_ENGINES), case.low_freeness)
    simulation = make_simulation(topology, make_profile(), case.seed, physics=PHYSICS, search=never)
    ttft = [record.ttft_s for record in serve(simulation, SERVICE, requests) if record.ttft_s is not None]
    assert simulation.processes is not None, "a topology that scales has supervisors"
    (supervisor,) = simulation.processes.supervisors.values()
    end = simulation.kernel.now
    return Outcome(supervisor.engine_seconds(end) / (end - simulation.origin_s), fmean(ttft), percentile(ttft, 99))


def engines_at(outcomes: Sequence[Outcome], ttft_p99: float) -> float | None:
    """Return the engines that a latency takes, by lines between outcomes on a logarithmic scale; None: not seen."""
    ordered = sorted(outcomes, key=lambda one: one.ttft_p99)
    for low, high in pairwise(ordered):
        if low.ttft_p99 <= ttft_p99 <= high.ttft_p99:
            span = log(high.ttft_p99 / low.ttft_p99)
            share = log(ttft_p99 / low.ttft_p99) / span if span else 0.0
            return low.engines + share * (high.engines - low.engines)
    return None


def savings(infaas: Sequence[Outcome], llumnix: Sequence[Outcome]) -> list[tuple[float, float]]:
    """Return each P99 of TTFT that INFaaS had, and the share of engines that Llumnix needs fewer for it."""
    found = [(one.ttft_p99, engines_at(llumnix, one.ttft_p99), one.engines) for one in infaas]
    return [(ttft_p99, 1 - needs / has) for ttft_p99, needs, has in found if needs is not None]


def main() -> None:
    options = _parse()
    cases = [
        Case(contender, Load(options.lengths, rate), low, options.seconds, seed)
        for rate in options.rates
        for contender in CONTENDERS
        for low in options.freeness
        for seed in range(options.seeds)
    ]
    console, outcomes = make_console(), run_cases(run_case, cases, options.jobs)
    for rate in options.rates:
        console.print(_table(rate, {case: one for case, one in outcomes.items() if case.load.rate == rate}))
        for seed in range(options.seeds):
            infaas, llumnix = (
                [
                    one
                    for case, one in outcomes.items()
                    if (case.contender, case.load.rate, case.seed) == (who, rate, seed)
                ]
                for who in CONTENDERS
            )
            for ttft_p99, share in savings(infaas, llumnix):
                console.print(f"seed {seed}: {100 * share:+.0f} % fewer engines at a P99 of TTFT of {ttft_p99:.1f} s")


def _table(rate: float, outcomes: Mapping[Case, Outcome]) -> Table:
    table = make_table(f"{rate:g} requests/s", (), ("", "seed", "bound", "engines", "TTFT mean, s", "TTFT P99, s"))
    for case, one in outcomes.items():
        numbers = (f"{one.engines:.2f}", f"{one.ttft_mean:.2f}", f"{one.ttft_p99:.2f}")
        table.add_row(case.contender.name, str(case.seed), f"{case.low_freeness:g}", *numbers)
    return table


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.llumnix.scaling", __doc__)
    parser.add_argument("--lengths", default="L-L", metavar="NAME", help="L-L, M-M, sharegpt, ... (default: L-L)")
    parser.add_argument("--rates", type=float, nargs="+", default=[1.6], metavar="R", help="requests a second")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="of arrivals")
    parser.add_argument("--freeness", type=float, nargs="+", default=[10, 40, 80, 160], metavar="F", help="low bounds")
    add_seeds(parser, 1)
    add_jobs(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
