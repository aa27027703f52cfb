"""Llumnix's evaluation in simulation: 16 Llama-7B engines on A10s, dispatch alone against rescheduling.

    python -m bench.papers.llumnix [--parts gains priorities] [--only S-L sharegpt] [--rates R ...] [--requests 4000]
        [--seeds 2] [--coast] [--out DIR]

``gains``: latencies, preemptions, migrations and fragmented memory of every workload at rates where queues begin, for
INFaaS, Llumnix's dispatch, that with rescheduling, and round robin for data sets. ``priorities``: 10 % of the requests
are of high priority, in bursts (gamma arrivals); what they gain when engines heed that, and what the others lose.
`bench.papers.llumnix.scaling` tells how many engines it takes.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from rich.table import Table

from bench.harness.arguments import add_jobs, add_out, add_seeds, script_parser
from bench.harness.tables import make_console, make_table
from bench.papers.llumnix.run import Latencies, Result, run_case
from bench.papers.llumnix.setting import CONTENDERS, INFAAS, LLUMNIX, NUM_ENGINES, Case, Load
from bench.papers.runs import over_seeds, run_cases, write_results

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
PARTS = ("gains", "priorities")
RATIOS = Latencies.__struct_fields__
Results = Mapping[Case, Result]


def main() -> None:
    options = _parse()
    results = over_seeds(run_cases(run_case, list(_cases(options)), options.jobs))
    console = make_console(140)
    if gains := {case: result for case, result in results.items() if not case.load.high_share}:
        for table in (_latencies_table(gains), _memory_table(gains), _gains_table(best_gains(gains))):
            console.print(table)
    if priorities := {case: result for case, result in results.items() if case.load.high_share}:
        console.print(_priorities_table(priorities))
    write_results(options.out / "llumnix.json", results)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.llumnix", __doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--only", nargs="+", choices=RATES, default=[*RATES], metavar="LOAD", help=", ".join(RATES))
    parser.add_argument("--rates", nargs="+", type=float, metavar="R", help="requests a second, not the built-in ones")
    parser.add_argument(
        "--engines", type=int, default=NUM_ENGINES, metavar="N", help="of gains (default: the paper's 16)"
    )
    parser.add_argument(
        "--neighbours", nargs="+", type=int, default=(), metavar="N", help="rescheduling in groups of N as well"
    )
    parser.add_argument("--requests", type=int, default=4000, metavar="N", help="of each run (default: 4000)")
    add_seeds(parser, 2)
    parser.add_argument("--coast", action="store_true", help="faster; moves come at other times")
    add_jobs(parser)
    add_out(parser, "llumnix_figure")
    return parser.parse_args()


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    seeds = range(options.seeds)
    if "priorities" in options.parts:
        for cv, heeds, seed in product(BURSTS, (False, True), seeds):
            load = replace(PRIORITIES, cv=cv)
            yield Case(load, LLUMNIX, seed, options.requests, heeds_priorities=heeds, coasts=options.coast)
    if "gains" in options.parts:
        for lengths in options.only:
            contenders = [*CONTENDERS[lengths not in DATA_SETS :], *map(LLUMNIX.among, options.neighbours)]
            for rate, contender, seed in product(options.rates or RATES[lengths], contenders, seeds):
                load = Load(lengths, rate)
                yield Case(load, contender, seed, options.requests, options.engines, coasts=options.coast)


# --- what is told -----------------------------------------------------------------------------------------------------


def _latencies_table(results: Results) -> Table:
    columns = ("TTFT mean", "P99", "a token mean, ms", "P99", "request mean", "P99", "failed")
    table = make_table("latencies, s", ("load", "req/s", "policy"), columns)
    for case, result in results.items():
        mean = result.latencies["all"]
        table.add_row(
            *_names(case),
            *(f"{value:.2f}" for value in (mean.ttft_mean, mean.ttft_p99)),
            *(f"{1e3 * value:.1f}" for value in (mean.tpot_mean, mean.tpot_p99)),
            *(f"{value:.1f}" for value in (mean.e2e_mean, mean.e2e_p99)),
            str(result.num_failed),
        )
    return table


def _memory_table(results: Results) -> Table:
    columns = ("preempted, %", "lost, s/request", "fragmented, %", "moves/request", "most", "aborted")
    table = make_table("preemptions and migrations", ("load", "req/s", "policy"), columns)
    for case, result in results.items():
        table.add_row(
            *_names(case),
            f"{100 * result.preempted:.1f}",
            f"{result.lost_s:.3f}",
            f"{100 * result.fragmented:.2f}",
            f"{result.moves:.3f}",
            str(max(result.moved)),
            str(result.aborted),
        )
    return table


def _names(case: Case) -> tuple[str, str, str]:
    return case.load.name, f"{case.load.rate:g}", case.contender.name


def best_gains(results: Results) -> dict[str, dict[str, tuple[float, float]]]:
    """Find the greatest ratio of INFaaS's to rescheduling's over all rates, and its rate, by workload and figure.

    The paper says "up to" so many times better, too.
    """
    best: dict[str, dict[str, tuple[float, float]]] = {}
    for case, ours in results.items():
        theirs = results.get(replace(case, contender=INFAAS))
        if case.contender == LLUMNIX and theirs is not None:
            known = best.setdefault(case.load.name, {})
            for name in RATIOS:
                ratio = getattr(theirs.latencies["all"], name) / getattr(ours.latencies["all"], name)
                known[name] = max(known.get(name, (0.0, 0.0)), (ratio, case.load.rate))
    return best


def _gains_table(gains: Mapping[str, Mapping[str, tuple[float, float]]]) -> Table:
    table = make_table("up to so many times better than INFaaS (at req/s)", ("load",), RATIOS)
    for load, by_name in gains.items():
        table.add_row(load, *(f"{by_name[name][0]:.2f} ({by_name[name][1]:g})" for name in RATIOS))
    return table


def _priorities_table(results: Results) -> Table:
    """Compare what engines make of high priority with what they do where they do not heed it, by priority."""
    table = make_table("priorities: not heeded / heeded = ratio", ("load", "requests"), RATIOS)
    for case, result in results.items():
        if case.heeds_priorities:
            without = results[replace(case, heeds_priorities=False)]
            for group in ("high", "normal"):
                pair = without.latencies[group], result.latencies[group]
                table.add_row(case.load.name, group, *(_compared(*pair, name) for name in RATIOS))
    return table


def _compared(without: Latencies, heeded: Latencies, name: str) -> str:
    before, after = getattr(without, name), getattr(heeded, name)
    scale, digits = (1e3, 0) if name.startswith("tpot") else (1.0, 2)
    return f"{scale * before:.{digits}f} / {scale * after:.{digits}f} = {before / after:.2f}"
