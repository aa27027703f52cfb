"""Llumnix's evaluation in simulation: 16 Llama-7B engines on A10s, dispatch alone against rescheduling.

    python -m bench.papers.llumnix [--parts gains priorities instances] [--only S-L sharegpt] [--rates R ...]
        [--requests 4000] [--seeds 2] [--coast] [--out DIR]

``gains``: latencies, preemptions, migrations and fragmented memory of every workload at rates where queues begin, for
INFaaS, Llumnix's dispatch, that with rescheduling, and round robin for data sets. ``priorities``: 10 % of the requests
are of high priority, in bursts (gamma arrivals); what they gain when engines heed that, and what the others lose.
``instances``: the fewest engines that keep the P99 of TTFT within 5 s. The paper scales their number during a run; here
it is fixed.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bench.harness.arguments import add_jobs, add_out, add_seeds, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import run_jobs
from bench.harness.tables import make_console
from bench.papers.llumnix.report import gains_tables, instances_table, priorities_table
from bench.papers.llumnix.run import Answers, Job, Result, Sized, Sizing, run_job
from bench.papers.llumnix.setting import CONTENDERS, DISPATCH, INFAAS, LLUMNIX, Case, Load

RATES = {  # requests a second: from where the P99 of TTFT begins to grow
    "sharegpt": (10.5, 11.0, 11.5),
    "burstgpt": (12.0, 12.5, 13.0),
    "S-S": (80.0, 90.0, 100.0),
    "M-M": (11.5, 12.5, 13.5),
    "L-L": (2.9, 3.2, 3.5),
    "S-L": (4.5, 5.0, 5.5),
    "L-S": (32.0, 36.0, 40.0),
}
DATA_SETS = ("sharegpt", "burstgpt")  # the paper has round robin for these only
BURSTS = (2.0, 4.0, 6.0, 8.0)  # coefficients of variation
PRIORITIES = Load("S-S", 90.0, high_share=0.1)
INSTANCES = "L-L"
TARGET_S = 5.0
PARTS = ("gains", "priorities", "instances")


def main() -> int:
    options = _parse()
    jobs = list(_jobs(options))
    answers: Answers = dict(zip(jobs, run_jobs(run_job, jobs, options.jobs), strict=True))
    console = make_console(140)
    cases = {job: answer for job, answer in answers.items() if isinstance(job, Case) and isinstance(answer, Result)}
    sizings = {job: answer for job, answer in answers.items() if isinstance(job, Sizing) and isinstance(answer, Sized)}
    gains = {case: result for case, result in cases.items() if not case.load.high_share}
    priorities = {case: result for case, result in cases.items() if case.load.high_share}
    tables = [*gains_tables(gains)] if gains else []
    tables += [priorities_table(priorities)] if priorities else []
    tables += [instances_table(sizings)] if sizings else []
    for table in tables:
        console.print(table)
    write_json(options.out / "llumnix.json", _as_data(answers))
    from bench.papers.llumnix.report import plot_gains, plot_moves, plot_over_time

    if gains:
        for plot in (plot_gains, plot_moves, plot_over_time):
            console.print(f"drew {plot(options.out, gains)}")
    return 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.llumnix", __doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--only", nargs="+", choices=RATES, default=[*RATES], metavar="LOAD", help=", ".join(RATES))
    parser.add_argument(
        "--rates", nargs="+", type=float, metavar="R", help="requests a second, instead of the built-in"
    )
    parser.add_argument("--requests", type=int, default=4000, metavar="N", help="of each run (default: 4000)")
    add_seeds(parser, 2)
    parser.add_argument("--coast", action="store_true", help="faster; moves come at other times")
    add_jobs(parser)
    add_out(parser, "llumnix_figure")
    return parser.parse_args()


# --- what is run ------------------------------------------------------------------------------------------------------


def _jobs(options: argparse.Namespace) -> Iterator[Job]:
    """The longest first, so that none is left for the end."""
    if "instances" in options.parts:
        for rate in options.rates or RATES[INSTANCES]:
            for contender in (INFAAS, DISPATCH, LLUMNIX):
                yield Sizing(Load(INSTANCES, rate), contender, options.seeds, options.requests, TARGET_S, options.coast)
    if "priorities" in options.parts:
        yield from _priority_cases(options)
    if "gains" in options.parts:
        for lengths in options.only:
            for rate in options.rates or RATES[lengths]:
                for contender in CONTENDERS[lengths not in DATA_SETS :]:
                    for seed in range(options.seeds):
                        yield Case(Load(lengths, rate), contender, seed, options.requests, coasts=options.coast)


def _priority_cases(options: argparse.Namespace) -> Iterator[Case]:
    for cv in BURSTS:
        load = replace(PRIORITIES, cv=cv)
        for heeds in (False, True):
            for seed in range(options.seeds):
                yield Case(load, LLUMNIX, seed, options.requests, heeds_priorities=heeds, coasts=options.coast)


def _as_data(answers: Answers) -> list[dict[str, Any]]:
    return [{"job": job, "answer": answer} for job, answer in answers.items()]
