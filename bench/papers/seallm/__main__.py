"""SeaLLM's testbed in simulation: 32 GPUs in 4 nodes, 8 services (figures 6 to 8, 10 to 13).

    python -m bench.papers.seallm --arrivals FILE [--cv 1] [--context 4096] [--systems ours dedicated ...]
        [--rates 2 5 ...] [--devices 32] [--consecutive 1] [--noise 0] [--requests 400] [--seconds 600]
        [--assignments 3] [--seeds 1] [--jobs N] [--out DIR]

Services are clusters of requests by length, each with one of four models. Our placement search and doubling budgets are
beside own devices for each service (as vLLM), first come first served (as AlpaServe) and parts of the memory and of the
SMs (as MuxServe). They are also beside ourselves with a part left out: with first come first served (ours-F), with
skip-join MLFQ (ours-M), and without sharing (ours-P).

``--devices``, ``--consecutive`` and ``--noise`` are the paper's density, skewness and accuracy of profiles: how many
GPUs there are, how many requests of one service come one after the other, and by how much answers differ in length
from what is known. The last table tells what is kept of stricter and laxer promises.

Plans are made for other minutes of the same sources and stay during a run. ``foreseen`` has one that is made for the
run itself, and ``ours-A`` one for the first twelfth of it. The placement daemon changes the plan of those that are
``replaced`` (what engines hold) and ``regrouped`` (also which devices they have).

Requests join the batch of their service. Of those that are ``strict`` none does while one that came before it decodes.

What parts MuxServe's services have is told by `bench.papers.seallm.multiplexing`. Runs are kept below ``--out``:
interrupted, or with another question, the bench goes on where it was.

Ratios are geometric means over assignments of models and seeds, with 95 % intervals of pairs.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf
from pathlib import Path
from statistics import fmean

from bench.harness.arguments import add_names, errors_in_a_line, script_parser
from bench.harness.long_runs import LongRuns
from bench.harness.paired import Compared, ratio
from bench.harness.tables import print_table
from bench.papers.seallm.lengths import Spread
from bench.papers.seallm.plans import Effort, Planner
from bench.papers.seallm.run import SCALES, Case, Result, run_case
from bench.papers.seallm.scene import NUM_DEVICES, Inputs, Scene, make_world
from bench.papers.seallm.systems import OURS, SYSTEMS

PAPERS: Mapping[str, Mapping[str, float]] = {  # "up to so many times better", sections 6.2 and 6.3
    "dedicated": {"mean": 10.38, "p99": 12.13, "attainment": 1.82},
    "alpaserve": {"mean": 9.52, "p99": 5.80, "attainment": 3.64},
    "muxserve": {"mean": 13.60, "p99": 18.69, "attainment": 2.11, "ttft_s": 51.98},
    "ours-F": {"mean": 4.17, "attainment": 1.37},
    "ours-M": {"mean": 4.17, "attainment": 1.37},
    "ours-A": {"mean": 2.44, "attainment": 1.33},
}
MEASURES = {"mean": "mean latency", "p99": "P99", "attainment": "kept", "ttft_s": "TTFT"}
KEPT = 0.9  # that ours keeps in the paper at every rate

PLAN_S, SECONDS_A_REQUEST = 15.0, 0.01
WIDTH = 160  # characters of tables


@dataclass(frozen=True, slots=True)
class Run:
    system: str
    rate: float
    assignment: int
    seed: int


Results = Mapping[Run, Result]


def main() -> None:
    options = _parse()
    spread, effort = Spread(options.cv, options.context), Effort(options.history, batches=options.batches)
    worlds = [Inputs(options.arrivals, spread, number) for number in range(options.assignments)]
    with errors_in_a_line():
        for inputs in worlds:
            make_world(inputs)  # before anything is run
    runs = LongRuns(run_case, dict[str, Result], _about_s)
    found = runs.run(list(_cases(options, worlds, effort)), options.jobs, options.out, "seallm")
    results = {
        Run(name, case.scene.rate, case.inputs.assignment, case.scene.seed): result
        for case, by_name in found.items()
        for name, result in by_name.items()
    }
    measures = ("requests", "failed", "mean", "P99", "kept, %", "TTFT, s", "TPOT, ms", "plans", "regrouped")
    title = f"means of {options.assignments} assignments x {options.seeds} seeds; latencies normalised"
    print_table(title, ("requests/s", "system"), measures, _rows(results, options), WIDTH)
    title = "promises of so many times the own execution time: kept, %"
    print_table(
        title, ("requests/s", "system"), [f"{scale:g}" for scale in SCALES], _scale_rows(results, options), WIDTH
    )
    title = f"ours is so many times better, 95 % intervals (the paper's most); * ours keeps less than {KEPT:.0%}"
    print_table(title, ("than", "requests/s", *MEASURES.values()), (), _ratio_rows(results, options), WIDTH)


def _about_s(case: Case) -> float:
    """The seconds of one core that a case takes, roughly: to plan, and to serve."""
    num_requests = case.scene.rate * case.scene.span_s
    return PLAN_S + SECONDS_A_REQUEST * num_requests * len(case.systems)


def _cases(options: argparse.Namespace, worlds: Sequence[Inputs], effort: Effort) -> Iterator[Case]:
    for inputs, seed, rate, planner in product(worlds, range(options.seeds), options.rates, Planner):
        systems = tuple(name for name in options.systems if SYSTEMS[name].planner is planner)
        if systems:
            span_s = max(options.seconds, options.requests / rate)
            scene = Scene(rate, span_s, options.devices, seed, options.consecutive, options.noise)
            yield Case(planner, systems, inputs, scene, effort)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.seallm", __doc__, seeds=1, jobs=True, out="testbed")
    parser.add_argument("--arrivals", type=Path, required=True, metavar="FILE", help="Azure Functions")
    parser.add_argument("--cv", type=float, default=1.0, help="coefficient of variation of lengths (default: 1)")
    parser.add_argument("--context", type=int, metavar="TOKENS", help="cut prompts to it (default: they stay whole)")
    add_names(parser, "--systems", SYSTEMS)
    parser.add_argument("--rates", nargs="+", type=float, default=[2.0, 5.0, 10.0, 20.0], metavar="R")
    parser.add_argument("--devices", type=int, default=NUM_DEVICES, choices=(16, 32, 48, 64), help="GPUs (default: 32)")
    parser.add_argument(
        "--consecutive", type=int, default=1, metavar="N", help="requests of a service in a row (default: 1)"
    )
    parser.add_argument(
        "--noise", type=float, default=0.0, metavar="X", help="of answers, in their length (default: 0)"
    )
    parser.add_argument("--requests", type=int, default=400, metavar="N", help="of a run at least (default: 400)")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="of a run at least (default: 600)")
    parser.add_argument("--history", type=int, default=200, metavar="N", help="requests that plans are made for")
    parser.add_argument("--batches", type=int, default=5, metavar="N", help="of 8 plans each, in local search")
    parser.add_argument("--assignments", type=int, default=3, metavar="N", help="of models to services (default: 3)")
    options = parser.parse_args()
    if options.consecutive < 1:
        parser.error(f"--consecutive {options.consecutive}: is not positive; 1 leaves requests in their order")
    if not 0 <= options.noise < inf:
        parser.error(f"--noise {options.noise:g}: want a number of 0 or more, such as 4 for four times the length")
    return options


def _rows(results: Results, options: argparse.Namespace) -> Iterator[Sequence[str]]:
    for rate, name in product(options.rates, options.systems):
        of_all = [result for run, result in results.items() if (run.rate, run.system) == (rate, name)]

        def mean(measure: str, of_all: Sequence[Result] = of_all) -> float:
            return fmean(getattr(result, measure) for result in of_all)

        counts = (f"{sum(getattr(one, which) for one in of_all)}" for which in ("num_requests", "num_failed"))
        latencies = f"{mean('mean'):.2f}", f"{mean('p99'):.1f}", f"{100 * mean('attainment'):.1f}"
        changes = (f"{sum(getattr(one, which) for one in of_all)}" for which in ("num_plans", "num_regrouped"))
        tokens = f"{mean('ttft_s'):.2f}", f"{1e3 * mean('tpot_s'):.0f}"
        yield f"{rate:g}", name, *counts, *latencies, *tokens, *changes


def _scale_rows(results: Results, options: argparse.Namespace) -> Iterator[Sequence[str]]:
    for rate, name in product(options.rates, options.systems):
        of_all = [result.kept_at for run, result in results.items() if (run.rate, run.system) == (rate, name)]
        yield f"{rate:g}", name, *(f"{100 * fmean(kept):.1f}" for kept in zip(*of_all, strict=True))


def ratios(results: Results, name: str, rate: float) -> dict[str, Compared]:
    """How many times better ours is at that rate, by measure; empty without ours or the other."""
    pairs = [
        (results[ours], theirs)
        for run, theirs in results.items()
        if run.system == name and run.rate == rate and (ours := Run(OURS, rate, run.assignment, run.seed)) in results
    ]
    return {measure: _better(measure, pairs) for measure in MEASURES} if pairs else {}


def _better(measure: str, pairs: Sequence[tuple[Result, Result]]) -> Compared:
    ours, theirs = ([float(getattr(result, measure)) for result in results] for results in zip(*pairs, strict=True))
    return ratio(ours, theirs) if measure == "attainment" else ratio(theirs, ours)  # the smaller latency is better


def _ratio_rows(results: Results, options: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Ours against another system, with the paper's best in brackets."""
    for name, rate in product(options.systems, options.rates):
        found = {} if name == OURS else ratios(results, name, rate)
        if found:
            ours = [result.attainment for run, result in results.items() if (run.system, run.rate) == (OURS, rate)]
            mark = "" if fmean(ours) >= KEPT else " *"
            papers = PAPERS.get(name.partition(",")[0], {})
            stated = (f" [{papers[measure]:g}]" if measure in papers else "" for measure in MEASURES)
            cells = map("".join, zip((one.text() for one in found.values()), stated, strict=True))
            yield name, f"{rate:g}{mark}", *cells


if __name__ == "__main__":
    main()
