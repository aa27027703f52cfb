"""Llumnix's evaluation in simulation: 16 Llama-7B engines on A10s, dispatch alone against rescheduling.

    python -m bench.papers.llumnix [--only S-L sharegpt] [--rates R ...] [--requests 4000] [--seeds 2] [--coast]
        [--jobs N] [--out DIR]

Every workload is served at rates where queues begin, by INFaaS, by Llumnix's dispatch, by that with rescheduling, and
by round robin for data sets. The tables have latencies, preemptions, migrations and fragmented memory.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from rich.table import Table

from bench.harness.arguments import add_jobs, add_out, add_seeds, script_parser
from bench.harness.tables import make_console, make_table
from bench.papers.llumnix.run import Latencies, Result, run_case
from bench.papers.llumnix.setting import CONTENDERS, INFAAS, LLUMNIX, Case
from bench.simulated import over_seeds, run_cases, write_results

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
RATIOS = Latencies.__struct_fields__
Results = Mapping[Case, Result]


def main() -> None:
    options = _parse()
    results = over_seeds(run_cases(run_case, list(_cases(options)), options.jobs))
    for table in (_latencies_table(results), _memory_table(results), _gains_table(best_gains(results))):
        make_console(140).print(table)
    write_results(options.out / "llumnix.json", results)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.llumnix", __doc__)
    parser.add_argument("--only", nargs="+", choices=RATES, default=[*RATES], metavar="LOAD", help=", ".join(RATES))
    parser.add_argument("--rates", nargs="+", type=float, metavar="R", help="requests a second, not the built-in ones")
    parser.add_argument("--requests", type=int, default=4000, metavar="N", help="of each run (default: 4000)")
    add_seeds(parser, 2)
    parser.add_argument("--coast", action="store_true", help="faster; moves come at other times")
    add_jobs(parser)
    add_out(parser, "llumnix_figure")
    return parser.parse_args()


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    for lengths in options.only:
        contenders = CONTENDERS[lengths not in DATA_SETS :]
        for rate, contender, seed in product(options.rates or RATES[lengths], contenders, range(options.seeds)):
            yield Case(lengths, rate, contender, seed, options.requests, coasts=options.coast)


# --- what is told -----------------------------------------------------------------------------------------------------


def _latencies_table(results: Results) -> Table:
    columns = ("TTFT mean", "P99", "a token mean, ms", "P99", "request mean", "P99", "failed")
    table = make_table("latencies, s", ("load", "req/s", "policy"), columns)
    for case, result in results.items():
        one = result.latencies
        seconds = f"{one.ttft_mean:.2f}", f"{one.ttft_p99:.2f}"
        milliseconds = f"{1e3 * one.tpot_mean:.1f}", f"{1e3 * one.tpot_p99:.1f}"
        ends = f"{one.e2e_mean:.1f}", f"{one.e2e_p99:.1f}", str(result.num_failed)
        table.add_row(*_names(case), *seconds, *milliseconds, *ends)
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
    return case.lengths, f"{case.rate:g}", case.contender.name


def best_gains(results: Results) -> dict[str, dict[str, tuple[float, float]]]:
    """Find the greatest ratio of INFaaS's to rescheduling's over all rates, and its rate, by workload and figure.

    The paper says "up to" so many times better, too.
    """
    best: dict[str, dict[str, tuple[float, float]]] = {}
    for case, ours in results.items():
        theirs = results.get(replace(case, contender=INFAAS))
        if case.contender == LLUMNIX and theirs is not None:
            known = best.setdefault(case.lengths, {})
            for name in RATIOS:
                ratio = getattr(theirs.latencies, name) / getattr(ours.latencies, name)
                known[name] = max(known.get(name, (0.0, 0.0)), (ratio, case.rate))
    return best


def _gains_table(gains: Mapping[str, Mapping[str, tuple[float, float]]]) -> Table:
    table = make_table("up to so many times better than INFaaS (at req/s)", ("load",), RATIOS)
    for load, by_name in gains.items():
        table.add_row(load, *(f"{by_name[name][0]:.2f} ({by_name[name][1]:g})" for name in RATIOS))
    return table
