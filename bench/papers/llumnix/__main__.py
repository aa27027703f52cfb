"""Llumnix's evaluation in simulation: 16 Llama-7B engines on A10s, dispatch alone against rescheduling.

    python -m bench.papers.llumnix [--only S-L sharegpt] [--rates R ...] [--requests 4000] [--seeds 2] [--coast]
        [--engines 16] [--neighbours N ...] [--jobs N] [--out DIR]

Every workload is served at rates where queues begin, by INFaaS, by Llumnix's dispatch, by that with rescheduling, and
by round robin for data sets. The table has latencies, preemptions and migrations.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from bench.harness.arguments import add_out, add_seeds, script_parser
from bench.harness.tables import print_table
from bench.papers.llumnix.setting import (
    CONTENDERS,
    DISPATCH,
    INFAAS,
    LLUMNIX,
    NUM_ENGINES,
    Case,
    Result,
    run_case,
)
from bench.simulated import run_cases, write_results
from mesh.jobs.arguments import add_jobs

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
Results = Mapping[Case, Result]


def main() -> None:
    options = _parse()
    results = run_cases(run_case, list(_cases(options)), options.jobs)
    latencies = ("TTFT, s", "P99", "token, ms", "P99", "request, s", "P99")
    moves = ("failed", "preempted, %", "moves/request", "better: TTFT, P99, token P99")
    print_table("by load and seed", ("load", "req/s", "seed", "policy"), (*latencies, *moves), _rows(results), 160)
    write_results(options.out / "llumnix.json", results)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.llumnix", __doc__)
    parser.add_argument("--only", nargs="+", choices=RATES, default=[*RATES], metavar="LOAD", help=", ".join(RATES))
    parser.add_argument("--rates", nargs="+", type=float, metavar="R", help="requests a second, not the built-in ones")
    parser.add_argument("--requests", type=int, default=4000, metavar="N", help="of each run (default: 4000)")
    parser.add_argument("--engines", type=int, default=NUM_ENGINES, metavar="N", help=f"(default: {NUM_ENGINES})")
    parser.add_argument(
        "--neighbours", nargs="+", type=int, default=[], metavar="N", help="compare groups of so many engines instead"
    )
    add_seeds(parser, 2)
    parser.add_argument("--coast", action="store_true", help="faster; moves come at other times")
    add_jobs(parser)
    add_out(parser, "llumnix_figure")
    return parser.parse_args()


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    for lengths in options.only:
        groups = [replace(LLUMNIX, name=f"groups of {number}", num_neighbours=number) for number in options.neighbours]
        contenders = [DISPATCH, *groups] if groups else CONTENDERS[lengths not in DATA_SETS :]
        for rate, contender, seed in product(options.rates or RATES[lengths], contenders, range(options.seeds)):
            yield Case(lengths, rate, contender, seed, options.requests, options.engines, coasts=options.coast)


def _rows(results: Results) -> Iterator[Sequence[str]]:
    """Latencies, in s and ms, and how many times better rescheduling is than INFaaS."""
    for case, one in results.items():
        names = case.lengths, f"{case.rate:g}", str(case.seed), case.contender.name
        tpot_ms = (1e3 * value for value in one.tpot_s)
        times = *(f"{value:.2f}" for value in one.ttft_s), *(f"{value:.1f}" for value in (*tpot_ms, *one.e2e_s))
        moved = str(one.num_failed), f"{100 * one.preempted:.1f}", f"{one.moves:.3f}"
        better = _better(one, results[replace(case, contender=INFAAS)]) if case.contender == LLUMNIX else ""
        yield *names, *times, *moved, better


def _better(ours: Result, theirs: Result) -> str:
    pairs = zip((*theirs.ttft_s, theirs.tpot_s[1]), (*ours.ttft_s, ours.tpot_s[1]), strict=True)
    return ", ".join(f"{other / own:.2f}" for other, own in pairs)


if __name__ == "__main__":
    main()
