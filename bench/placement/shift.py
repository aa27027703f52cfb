"""Plans of a whole simulated mesh while traffic changes: how often they change, and how soon attainment is back.

    python -m bench.placement.shift constant [--intervals 20] [--seeds 3] [--modes fixed,adaptive]
    python -m bench.placement.shift shift [--seeds 3] [--modes never,fixed,adaptive,informed]

Gateway, engines and placement daemon are the product's, on the mesh of `bench.placement.mesh`. It begins with the plan
that the search finds for the first traffic. ``shift``: from some moment of the fourth interval on, the busiest service
and another one change their rates. ``never``: there is no daemon (SeaLLM's ablation -A); ``fixed``: intervals keep
their length; ``adaptive``: as equation 8 has it; ``informed``: no daemon, nothing arrives before the shift, and the
plan is the one that the search finds for what comes after it: so much can be reached.

A search is taken to last 5 s and the time of local search, 10 s; weights come at the preset's 7 GB/s.
"""

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, product
from math import nan
from random import Random

import msgspec
from rich.table import Table

from bench.harness.arguments import add_jobs, add_seeds, script_parser
from bench.harness.jobs import run_jobs
from bench.harness.tables import make_console, make_table
from bench.placement import mesh
from bench.placement.log import Change, PlacementLog, Told, verdicts
from engines.costs.linear import serving_s
from mesh.topology.schema import PlacementSpec
from mesh.wire.placement import Decision, Forecast
from router.history.records import Outcome, Record
from router.placement.change.replacement import Verdict
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.garbage import rare_collections
from simulation.loads.workload import SloRule
from simulation.quiet import quiet_engines

INTERVAL_S = 120.0
SHIFT_FROM, SHIFT_UNTIL = 3.0, 4.0  # intervals, between which the shift falls
AFTER = 4  # intervals that are served after it


class Mode(StrEnum):
    NEVER = "never"
    FIXED = "fixed"
    ADAPTIVE = "adaptive"
    INFORMED = "informed"


@dataclass(frozen=True, slots=True)
class Case:
    """One run: what a worker process does."""

    mode: Mode
    rate: float
    num_intervals: float
    has_shift: bool
    num_batches: int
    seed: int
    dispersion: float = 1.0

    @property
    def load(self) -> mesh.Load:
        if not self.has_shift:
            return mesh.Load(self.rate, self.num_intervals * INTERVAL_S, self.seed, dispersion=self.dispersion)
        shift_at_s = INTERVAL_S * Random(f"{self.seed}/shift").uniform(SHIFT_FROM, SHIFT_UNTIL)
        span_s = shift_at_s + AFTER * INTERVAL_S
        return mesh.Load(self.rate, span_s, self.seed, shift_at_s=shift_at_s, dispersion=self.dispersion)

    @property
    def placement(self) -> PlacementSpec | None:
        match self.mode:
            case Mode.FIXED:
                return PlacementSpec(interval_s=INTERVAL_S, shortest_s=INTERVAL_S, longest_s=INTERVAL_S)
            case Mode.ADAPTIVE:
                return PlacementSpec(interval_s=INTERVAL_S)
            case _:
                return None

    def run(self) -> "Run":
        load = self.load
        first = load.next_busiest if self.mode is Mode.INFORMED else load.busiest
        what = mesh.topology(mesh.plan_for(load.rates(first), self.num_batches, self.seed), self.placement)
        log, records = PlacementLog(), list[Record]()
        simulation = Simulation(
            what,
            mesh.profiles(what),
            seed=self.seed,
            physics=Physics(),
            slo=SloRule(),
            coasts=True,
            search=mesh.searching(self.num_batches),
        )
        log.attach(simulation)
        from_s = (load.shift_at_s or 0.0) if self.mode is Mode.INFORMED else 0.0
        with rare_collections(), quiet_engines():
            trace = [request for request in load.trace() if request.at_s >= from_s]
            simulation.run(mesh.SERVICES[0], trace, records.append)
        outcomes = Counter(str(record.outcome) for record in records)
        served = served_of(records)
        return Run(str(self.mode), self.seed, load.shift_at_s, served, outcomes, log.decisions, log.changes)


class Served(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A request: when it arrived, whether it kept its promises, its latency over the mean of its service alone."""

    at_s: float
    is_in_time: bool
    latency: float


class Run(msgspec.Struct, frozen=True):
    """What came of a case."""

    mode: str
    seed: int
    shift_at_s: float | None
    served: list[Served]
    outcomes: dict[str, int]
    decisions: list[Told]
    changes: list[Change]

    def attainment(self, from_s: float, until_s: float) -> float:
        """Attainment of the requests that arrive then."""
        between = self._between(from_s, until_s)
        return statistics.fmean(one.is_in_time for one in between) if between else nan

    def latency(self, from_s: float, until_s: float) -> float:
        return statistics.fmean(one.latency for one in self._between(from_s, until_s))

    @property
    def end_s(self) -> float:
        return self.served[-1].at_s

    def _between(self, from_s: float, until_s: float) -> list[Served]:
        return [one for one in self.served if from_s <= one.at_s < until_s]


def served_of(records: Sequence[Record]) -> list[Served]:
    """In the order of their arrivals."""
    return sorted(map(_served, records))


def _served(record: Record) -> Served:
    """Requests that did not finish count with the latency that they had."""
    preset, inputs, outputs = mesh.PRESET, *mesh.DOCUMENTS
    alone_s = serving_s(preset.prefill, preset.decode, 1, round(inputs.mean), round(outputs.mean) - 1)
    return Served(record.arrived_s, record.meets_slo, (record.e2e_s or 0.0) / alone_s)


def run_case(case: Case) -> Run:
    """For a pool of processes."""
    return case.run()


def main() -> int:
    options = _parse()
    console = make_console()
    has_shift = options.what == "shift"
    cases = [
        Case(Mode(mode), options.rate, options.intervals, has_shift, options.batches, seed, options.dispersion)
        for seed, mode in product(range(options.seeds), options.modes)
    ]
    runs = run_jobs(run_case, cases, options.jobs)
    console.print(_shift_table(runs) if has_shift else _constant_table(runs))
    num_lost = sum(number for run in runs for ended, number in run.outcomes.items() if ended != Outcome.FINISHED)
    console.print(f"{num_lost} of {sum(len(run.served) for run in runs)} requests did not finish")
    return 1 if num_lost else 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.placement.shift", __doc__)
    parser.add_argument("what", choices=("constant", "shift"))
    parser.add_argument("--rate", type=float, default=1.2, metavar="R", help="requests a second (default: 1.2)")
    parser.add_argument(
        "--intervals", type=int, default=20, metavar="N", help="of 120 s, of constant load (default: 20)"
    )
    parser.add_argument("--modes", type=_modes, metavar="A,B", help=f"of {', '.join(Mode)} (default: all that apply)")
    parser.add_argument("--dispersion", type=float, default=1.0, metavar="D", help="of arrivals (default: 1, Poisson)")
    parser.add_argument("--batches", type=int, default=2, metavar="N", help="of local search (default: 2)")
    add_seeds(parser, 3)
    add_jobs(parser)
    options = parser.parse_args()
    if options.modes is None:
        options.modes = list(Mode) if options.what == "shift" else [Mode.FIXED, Mode.ADAPTIVE]
    return options


def _modes(text: str) -> list[Mode]:
    try:
        return [Mode(name) for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; there are {', '.join(Mode)}") from None


def _constant_table(runs: Sequence[Run]) -> Table:
    headings = (
        "seed",
        "intervals",
        "decisions",
        "changes",
        "attainment",
        "latency",
        "forecast off by",
        "last interval",
    )
    table = make_table("constant load", (), headings)
    for run in runs:
        table.add_row(
            f"{run.seed} {run.mode}",
            str(len(run.decisions)),
            verdicts(run.decisions),
            str(len(run.changes)),
            f"{run.attainment(0, run.end_s):.3f}",
            f"{run.latency(0, run.end_s):.2f}",
            ", ".join(f"{error:+.2f}" for error in forecast_errors(run.decisions)),
            f"{run.decisions[-1].decision.interval_s:.0f} s" if run.decisions else "",
        )
    return table


def forecast_errors(decisions: Sequence[Told]) -> tuple[float, float]:
    """Forecasts of normalised latency less what the next intervals brought: mean, and mean absolute value."""
    errors = [
        forecast.normalized_latency - after.decision.achieved.normalized_latency
        for before, after in pairwise(decisions)
        if (forecast := _in_force(before.decision)) is not None and after.decision.achieved is not None
    ]
    return (statistics.fmean(errors), statistics.fmean(map(abs, errors))) if errors else (nan, nan)


def _in_force(decision: Decision) -> Forecast | None:
    """What was forecast of the plan that the next interval has."""
    return decision.proposed if decision.verdict == Verdict.REPLACE else decision.predicted


def _shift_table(runs: Sequence[Run]) -> Table:
    headings = ("seed", "before", *map(str, range(1, AFTER + 1)), "latency after", "changes, s after")
    table = make_table("shift: attainment by interval from it on", (), headings)
    for run in runs:
        shift_at_s = run.shift_at_s or 0.0
        changes = ", ".join(f"{change.until_s - shift_at_s:.0f}" for change in run.changes)
        table.add_row(
            f"{run.seed} {run.mode}",
            f"{run.attainment(0, shift_at_s):.3f}",
            *(f"{attainment:.3f}" for attainment in _by_interval(run, shift_at_s)),
            f"{run.latency(shift_at_s, run.end_s):.2f}",
            changes,
        )
    return table


def _by_interval(run: Run, shift_at_s: float) -> Iterator[float]:
    for number in range(AFTER):
        since_s = shift_at_s + number * INTERVAL_S
        yield run.attainment(since_s, since_s + INTERVAL_S)


if __name__ == "__main__":
    sys.exit(main())
