"""Plans of a whole simulated mesh while traffic changes: how often they change, and how soon attainment is back.

    python -m bench.placement.shift constant [--seeds 3] [--modes fixed adaptive]
    python -m bench.placement.shift shift [--seeds 3] [--modes never fixed adaptive informed]

Gateway, engines and placement daemon are the product's, on the mesh of `bench.placement.mesh`. It begins with the plan
that the search finds for the first traffic. ``constant``: 20 intervals of 120 s. ``shift``: from some moment of the
fourth interval on, the busiest service and another one change their rates. ``never``: there is no daemon (SeaLLM's
ablation -A); ``fixed``: intervals keep their length; ``adaptive``: as equation 8 has it; ``informed``: no daemon,
nothing arrives before the shift, and the plan is the one that the search finds for what comes after it: so much can be
reached.

A search is taken to last 5 s and the time of local search, 10 s; weights come at the preset's 7 GB/s.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, product
from math import nan
from random import Random
from statistics import fmean

from rich.table import Table

from bench.harness.arguments import add_jobs, add_seeds, script_parser
from bench.harness.tables import make_console, make_table
from bench.placement import mesh
from bench.simulated import make_simulation, run_cases, serve
from engines.costs.linear import serving_s
from mesh.topology.schema import PlacementSpec
from mesh.wire.frames import Sender
from mesh.wire.placement import Decision, PlacementStatus
from router.history.records import Outcome, Record
from simulation.cluster import Simulation

INTERVAL_S = 120.0
CONSTANT = 20  # intervals
SHIFT_FROM, SHIFT_UNTIL = 3.0, 4.0  # intervals, between which the shift falls
AFTER = 4  # intervals that are served after it


class Mode(StrEnum):
    NEVER = "never"
    FIXED = "fixed"
    ADAPTIVE = "adaptive"
    INFORMED = "informed"


PLACEMENTS = {
    Mode.FIXED: PlacementSpec(interval_s=INTERVAL_S, shortest_s=INTERVAL_S, longest_s=INTERVAL_S),
    Mode.ADAPTIVE: PlacementSpec(interval_s=INTERVAL_S),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One run: what a worker process does. Without a shift it has ``num_intervals``."""

    mode: Mode
    seed: int
    has_shift: bool
    rate: float = 1.2  # requests a second
    num_intervals: int = CONSTANT
    num_batches: int = 2  # of local search

    @property
    def load(self) -> mesh.Load:
        if not self.has_shift:
            return mesh.Load(self.rate, self.num_intervals * INTERVAL_S, self.seed)
        shift_at_s = INTERVAL_S * Random(f"{self.seed}/shift").uniform(SHIFT_FROM, SHIFT_UNTIL)
        return mesh.Load(self.rate, shift_at_s + AFTER * INTERVAL_S, self.seed, shift_at_s=shift_at_s)


@dataclass(frozen=True, slots=True, order=True)
class Served:
    """A request: when it arrived, whether it kept its promises, its latency over the mean of its service alone."""

    at_s: float
    is_in_time: bool
    latency: float


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a case. ``changed_at_s``: when plans had been carried out."""

    served: Sequence[Served]
    num_lost: int
    decisions: Sequence[Decision]
    changed_at_s: Sequence[float]

    def attainment(self, from_s: float, until_s: float) -> float:
        return fmean([one.is_in_time for one in self.served if from_s <= one.at_s < until_s] or [nan])

    def latency(self, from_s: float) -> float:
        return fmean(one.latency for one in self.served if from_s <= one.at_s < self.end_s)

    @property
    def end_s(self) -> float:
        return self.served[-1].at_s


def run_case(case: Case) -> Run:
    load = case.load
    is_informed = case.mode is Mode.INFORMED
    plan = mesh.plan_for(load.rates(load.next_busiest if is_informed else load.busiest), case.num_batches, case.seed)
    topology = mesh.topology(plan, PLACEMENTS.get(case.mode))
    search = mesh.searching(case.num_batches)
    simulation = make_simulation(topology, mesh.PROFILE, case.seed, coasts=True, search=search)
    decisions, changed_at_s = _listen(simulation)
    from_s = (load.shift_at_s or 0.0) if is_informed else 0.0
    trace = [request for request in load.trace() if request.at_s >= from_s]
    records = serve(simulation, mesh.SERVICES[0], trace)
    num_lost = sum(record.outcome is not Outcome.FINISHED for record in records)
    return Run(sorted(map(_served, records)), num_lost, decisions, changed_at_s)


def _listen(simulation: Simulation) -> tuple[list[Decision], list[float]]:
    """Return what will have the daemon's decisions, and the times at which its plans were carried out."""
    decisions, changed_at_s = list[Decision](), list[float]()

    def hear(_: Sender, status: PlacementStatus) -> None:
        if status.decision is not None and decisions[-1:] != [status.decision]:
            decisions.append(status.decision)
        if status.changes_total > len(changed_at_s):
            changed_at_s.append(simulation.kernel.now - status.made_age_s)

    simulation.network.watch("watch", PlacementStatus, hear)
    return decisions, changed_at_s


def _served(record: Record) -> Served:
    """Requests that did not finish count with the latency that they had."""
    inputs, outputs = mesh.DOCUMENTS
    alone_s = serving_s(mesh.PRESET.prefill, mesh.PRESET.decode, 1, round(inputs.mean), round(outputs.mean) - 1)
    return Served(record.arrived_s, record.meets_slo, (record.e2e_s or 0.0) / alone_s)


def main() -> None:
    options = _parse()
    has_shift = options.what == "shift"
    modes = options.modes or (list(Mode) if has_shift else [Mode.FIXED, Mode.ADAPTIVE])
    cases = [Case(mode, seed, has_shift) for seed, mode in product(range(options.seeds), modes)]
    runs = run_cases(run_case, cases, options.jobs)
    console = make_console()
    console.print(_shift_table(runs) if has_shift else _constant_table(runs))
    num_lost, num_served = sum(run.num_lost for run in runs.values()), sum(len(run.served) for run in runs.values())
    console.print(f"{num_lost} of {num_served} requests did not finish")
    if num_lost:
        raise SystemExit(1)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.placement.shift", __doc__)
    parser.add_argument("what", choices=("constant", "shift"))
    parser.add_argument("--modes", type=Mode, choices=list(Mode), nargs="+", help="(default: all that apply)")
    add_seeds(parser, 3)
    add_jobs(parser)
    return parser.parse_args()


def _constant_table(runs: dict[Case, Run]) -> Table:
    table = make_table("constant load", (), ("seed", "decisions", "", "changes", "attainment", "latency"))
    for case, run in runs.items():
        verdicts = Counter(decision.verdict for decision in run.decisions)
        counts = ", ".join(f"{verdict}: {number}" for verdict, number in verdicts.most_common())
        figures = f"{run.attainment(0, run.end_s):.3f}", f"{run.latency(0):.2f}"
        decided = str(len(run.decisions)), counts, str(len(run.changed_at_s))
        table.add_row(f"{case.seed} {case.mode}", *decided, *figures)
    return table


def _shift_table(runs: dict[Case, Run]) -> Table:
    headings = ("seed", "before", *map(str, range(1, AFTER + 1)), "latency after", "changes, s after")
    table = make_table("shift: attainment by interval from it on", (), headings)
    for case, run in runs.items():
        shift_at_s = case.load.shift_at_s or 0.0
        bounds_s = [0.0, *(shift_at_s + number * INTERVAL_S for number in range(AFTER + 1))]
        attainments = (run.attainment(*span) for span in pairwise(bounds_s))
        changes = ", ".join(f"{at_s - shift_at_s:.0f}" for at_s in run.changed_at_s)
        figures = *(f"{one:.3f}" for one in attainments), f"{run.latency(shift_at_s):.2f}", changes
        table.add_row(f"{case.seed} {case.mode}", *figures)
    return table


if __name__ == "__main__":
    main()
