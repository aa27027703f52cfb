"""Llumnix's auto-scaling in simulation: engines in use, and the P99 of a first token, by when engines are started.

    python -m bench.papers.llumnix.scaling [--lengths L-L] [--rate 2] [--requests 2000] [--low 5 10 20 40 80]
        [--seeds 1] [--coast] [--jobs N] [--out DIR]

Both contenders scale by the paper's rule: one engine more where the mean freeness is below ``--low``, one less where it
is above six times that. A lower bound takes fewer engines, and longer tails. So each contender has a curve, and the
paper compares the engines at equal P99 (figure 15). An engine that ends moves what it decodes to others, which is part
of Llumnix. With ``infaas`` it waits for that to end. ``infaas, moving`` is infaas whose engines move it.

Runs are kept below ``--out``: interrupted, or with another question, the bench goes on where it was.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from statistics import fmean

from bench.harness.arguments import script_parser
from bench.harness.jobs import grouped
from bench.harness.long_runs import LongRuns
from bench.harness.paired import ratio
from bench.harness.tables import print_table
from bench.papers.llumnix.setting import (
    INFAAS,
    KV_BYTES_PER_S,
    LLUMNIX,
    NUM_ENGINES,
    SERVICE,
    WARM_UP,
    Case,
    make_profile,
    make_topology,
    mean_and_p99,
)
from bench.simulated import make_simulation, mean_engines, no_search, serve
from mesh.rules import ScalingRule
from mesh.topology.schema import ScalingSpec
from simulation.engines.physics import Physics

RATIO = 6.0  # of the bounds of freeness: the paper has 10 and 60
MOVING = replace(INFAAS, name="infaas, moving", migrates_on_drain=True)
CONTENDERS = (INFAAS, MOVING, LLUMNIX)
STARTED = 8  # engines, at first
SECONDS_A_REQUEST = 0.03
WIDTH = 120


@dataclass(frozen=True, slots=True)
class ScaledCase:
    """``low``: the mean freeness below which an engine is started."""

    load: Case
    low: float


@dataclass(frozen=True, slots=True)
class Scaled:
    """``engines``: in use on average, until the last request has ended. ``ttft_s``: mean and P99 of requests after the
    warm-up.
    """

    engines: float
    ttft_s: tuple[float, float]
    num_changes: int


def run_scaled(case: ScaledCase) -> Scaled:
    load = case.load
    rule = ScalingSpec(ScalingRule.FREENESS, low_freeness=case.low, high_freeness=RATIO * case.low, down_after_s=10.0)
    topology = make_topology(
        load.contender, load.num_engines, caches=load.caches, scaling=rule, num_started=min(STARTED, load.num_engines)
    )
    physics = Physics(kv_bytes_per_s=KV_BYTES_PER_S, step_s=load.step_s)
    simulation = make_simulation(
        topology, make_profile(), load.seed, physics=physics, coasts=load.coasts, search=no_search
    )
    records = serve(simulation, SERVICE, load.requests())
    counted = sorted(records, key=lambda record: record.arrived_s)[round(WARM_UP * len(records)) :]
    engines, num_changes = mean_engines(simulation, simulation.kernel.now)
    return Scaled(engines, mean_and_p99(record.ttft_s for record in counted), num_changes)


Results = Mapping[ScaledCase, Scaled]
Curve = Sequence[tuple[float, float]]  # P99 of TTFT in s and engines, ascending


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    runs = LongRuns(run_scaled, Scaled, lambda case: SECONDS_A_REQUEST * case.load.num_requests)
    results = runs.run(list(_cases(options)), options.jobs, options.out, "scaling")
    columns = "engines in use", "TTFT, s", "P99", "started and ended"
    print_table(f"{options.lengths} at {options.rate:g}/s", ("policy", "low freeness"), columns, _rows(results), WIDTH)
    saved = equal_tails(results)
    print_table("engines at equal P99 of TTFT", ("P99, s",), (INFAAS.name, LLUMNIX.name, "saved"), saved, WIDTH)
    if not saved:
        print("no P99 that both reach with the bounds that were tried")
    beside = "engines, of theirs", "P99 of TTFT so many times shorter"
    title = "rescheduling at equal bounds"
    print_table(title, ("low freeness", "beside"), beside, list(at_equal_bounds(results)), WIDTH)


def _cases(options: argparse.Namespace) -> Iterator[ScaledCase]:
    for contender, low, seed in product(CONTENDERS, options.low, range(options.seeds)):
        load = Case(options.lengths, options.rate, contender, seed, options.requests, options.engines, options.coast)
        yield ScaledCase(load, low)


def curves(results: Results) -> dict[str, Curve]:
    """The curve of each contender: means of seeds."""
    points: dict[str, list[tuple[float, float]]] = {}
    for (name, _), own in grouped(results, _name_and_low).items():
        points.setdefault(name, []).append((fmean(one.ttft_s[1] for one in own), fmean(one.engines for one in own)))
    return {name: sorted(own) for name, own in points.items()}


def engines_at(curve: Curve, p99_s: float) -> float | None:
    """Return the engines on the line between the two nearest points; None beyond the curve."""
    for (before_s, before), (after_s, after) in pairwise(curve):
        if before_s <= p99_s <= after_s:
            share = (p99_s - before_s) / (after_s - before_s) if after_s > before_s else 0.0
            return before + share * (after - before)
    return None


def equal_tails(results: Results) -> list[tuple[str, str, str, str]]:
    """P99 of points of either curve that both reach, the engines of both, and what rescheduling saves, %."""
    own = curves(results)
    theirs, ours = own.get(INFAAS.name, ()), own.get(LLUMNIX.name, ())
    found = []
    for p99_s in sorted({p99_s for p99_s, _ in (*theirs, *ours)}):
        pair = engines_at(theirs, p99_s), engines_at(ours, p99_s)
        if pair[0] is not None and pair[1] is not None:
            found.append((f"{p99_s:.2f}", f"{pair[0]:.2f}", f"{pair[1]:.2f}", f"{100 * (1 - pair[1] / pair[0]):.0f} %"))
    return found


def at_equal_bounds(results: Results) -> Iterator[Sequence[str]]:
    """Rescheduling beside each other contender, of the same seeds, with 95 % intervals."""
    found = grouped(results, _name_and_low)
    for (name, low), theirs in found.items():
        ours = found.get((LLUMNIX.name, low))
        if name == LLUMNIX.name or ours is None or len(ours) != len(theirs):
            continue
        taken = ratio([one.engines for one in ours], [one.engines for one in theirs])
        shorter = ratio([one.ttft_s[1] for one in theirs], [one.ttft_s[1] for one in ours])
        yield f"{low:g}", name, taken.text(), shorter.text(1)


def _rows(results: Results) -> Iterator[Sequence[str]]:
    for (name, low), own in grouped(results, _name_and_low).items():
        means = [fmean(values) for values in zip(*((one.engines, *one.ttft_s) for one in own), strict=True)]
        changes = round(fmean(one.num_changes for one in own))
        yield name, f"{low:g}", *(f"{value:.2f}" for value in means), str(changes)


def _name_and_low(case: ScaledCase) -> tuple[str, float]:
    return case.load.contender.name, case.low


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = script_parser("bench.papers.llumnix.scaling", __doc__, seeds=1, jobs=True, out="llumnix_scaling")
    parser.add_argument("--lengths", default="L-L", help="of the paper's table 1, such as S-L (default: L-L)")
    parser.add_argument("--rate", type=float, default=2.0, metavar="R", help="requests a second (default: 2)")
    parser.add_argument("--requests", type=int, default=2000, metavar="N", help="of each run (default: 2000)")
    bounds = [5.0, 10.0, 20.0, 40.0, 80.0]
    parser.add_argument("--low", nargs="+", type=float, default=bounds, metavar="F", help="lower bounds of freeness")
    parser.add_argument("--engines", type=int, default=NUM_ENGINES, metavar="N", help="(default: 16)")
    parser.add_argument("--coast", action="store_true", help="faster; moves come at other times")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
