"""Llumnix's evaluation in simulation: 16 Llama-7B engines on A10s, dispatch alone against rescheduling.

    python -m bench.papers.llumnix [--only S-L sharegpt] [--rates R ...] [--requests 10000] [--seeds 4] [--coast]
        [--step-ms 6.3] [--prefix-cache] [--engines 16] [--neighbours N ...] [--contenders NAME ...]

Every workload is served at rates where queues begin, by INFaaS, by Llumnix's dispatch, by that with rescheduling, and
by round robin for data sets. The first tables have latencies, preemptions and migrations. The last one has how many
times shorter rescheduling makes latencies than each other contender, with 95 % intervals of paired seeds. It also has
the best of the rates, which is what the paper's "up to" is. A tenth of the requests is warm-up. Rates at which a
backlog grows are marked, and are no best ones.

Runs are kept below ``--out``: interrupted, or with another question, the bench goes on where it was.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean

from bench.harness.arguments import add_names, script_parser
from bench.harness.jobs import grouped
from bench.harness.long_runs import LongRuns
from bench.harness.paired import ratio
from bench.harness.tables import print_table
from bench.papers.llumnix.setting import CONTENDERS, DISPATCH, LLUMNIX, NUM_ENGINES, STEP_S, Case, Result, run_case

RATES = {  # requests a second: where queues begin, with the usual time between steps
    "sharegpt": (9.0, 9.5, 10.0),
    "burstgpt": (10.5, 11.0, 11.5),
    "S-S": (70.0, 78.0, 87.0),
    "M-M": (10.0, 11.0, 11.7),
    "L-L": (2.5, 2.8, 3.0),
    "S-L": (4.0, 4.4, 4.8),
    "L-S": (20.0, 24.0, 28.0),
}
GROWS = "backlog grows"
DATA_SETS = ("sharegpt", "burstgpt")  # the paper has round robin for these only
SECONDS_A_REQUEST = {False: 0.03, True: 0.015}  # of one core, by whether runs coast
MEASURES: Mapping[str, Callable[[Result], float]] = {
    "TTFT": lambda one: one.ttft_s[0],
    "TTFT P99": lambda one: one.ttft_s[1],
    "token": lambda one: one.tpot_s[0],
    "token P99": lambda one: one.tpot_s[1],
    "request": lambda one: one.e2e_s[0],
    "request P99": lambda one: one.e2e_s[1],
}
Results = Mapping[Case, Result]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    runs = LongRuns(run_case, Result, lambda case: SECONDS_A_REQUEST[case.coasts] * case.num_requests)
    results = runs.run(list(_cases(options)), options.jobs, options.out, "llumnix")
    latencies = ("TTFT, s", "P99", "token, ms", "P99", "request, s", "P99")
    moves = ("failed", "preempted, %", "moves/request", "")
    print_table("by load and seed", ("load", "req/s", "seed", "policy"), (*latencies, *moves), _rows(results), 160)
    title = f"{LLUMNIX.name}: so many times shorter, 95 % intervals of {options.seeds} paired seeds"
    print_table(title, ("load", "req/s", "than"), (*MEASURES, "preempted, %", ""), list(better_rows(results)), 160)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = script_parser("bench.papers.llumnix", __doc__, seeds=4, jobs=True, out="llumnix_figure")
    add_names(parser, "--only", RATES)
    parser.add_argument("--rates", nargs="+", type=float, metavar="R", help="requests a second, not the built-in ones")
    parser.add_argument("--requests", type=int, default=10_000, metavar="N", help="of each run (default: 10000)")
    parser.add_argument(
        "--step-ms", type=float, default=1e3 * STEP_S, metavar="MS", help="between steps (default: 6.3)"
    )
    parser.add_argument("--prefix-cache", action="store_true", help="what is preempted may find its KV again")
    add_names(parser, "--contenders", (contender.name for contender in CONTENDERS))
    parser.add_argument("--engines", type=int, default=NUM_ENGINES, metavar="N", help=f"(default: {NUM_ENGINES})")
    parser.add_argument(
        "--neighbours", nargs="+", type=int, default=[], metavar="N", help="compare groups of so many engines instead"
    )
    parser.add_argument("--coast", action="store_true", help="faster; moves come at other times")
    return parser.parse_args(arguments)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    fixed = options.requests, options.engines, options.coast, options.step_ms / 1e3, options.prefix_cache
    for lengths in options.only:
        groups = [replace(LLUMNIX, name=f"groups of {number}", num_neighbours=number) for number in options.neighbours]
        own = CONTENDERS[lengths not in DATA_SETS :]
        contenders = [DISPATCH, *groups] if groups else [one for one in own if one.name in options.contenders]
        for rate, contender, seed in product(options.rates or RATES[lengths], contenders, range(options.seeds)):
            yield Case(lengths, rate, contender, seed, *fixed)


def _rows(results: Results) -> Iterator[Sequence[str]]:
    """Latencies, in s and ms."""
    for case, one in results.items():
        names = case.lengths, f"{case.rate:g}", str(case.seed), case.contender.name
        tpot_ms = (1e3 * value for value in one.tpot_s)
        times = *(f"{value:.2f}" for value in one.ttft_s), *(f"{value:.1f}" for value in (*tpot_ms, *one.e2e_s))
        mark = GROWS if one.grows else ""
        yield *names, *times, str(one.num_failed), f"{100 * one.preempted:.1f}", f"{one.moves:.3f}", mark


def better_rows(results: Results) -> Iterator[Sequence[str]]:
    """How many times shorter latencies are with rescheduling than with each other contender, by load and rate. Also
    at the best of the rates at which no backlog grows: where one does, a longer run has another ratio.
    """
    by_seed = grouped(results, lambda case: replace(case, seed=0))
    best: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for case, theirs in by_seed.items():
        ours = by_seed.get(replace(case, contender=LLUMNIX))
        if ours is None or case.contender == LLUMNIX:
            continue
        found = {name: ratio(list(map(value, theirs)), list(map(value, ours))) for name, value in MEASURES.items()}
        key = case.lengths, case.contender.name
        at_rate = [(one.mean, f"{one.text()} at {case.rate:g}") for one in found.values()]
        grows = any(one.grows for one in (*theirs, *ours))
        if not grows:
            best[key] = list(map(max, best.get(key, at_rate), at_rate))
        preempted = ", ".join(f"{100 * fmean(one.preempted for one in each):.1f}" for each in (theirs, ours))
        cells = *(one.text() for one in found.values()), preempted, GROWS if grows else ""
        yield case.lengths, f"{case.rate:g}", case.contender.name, *cells
    for (lengths, name), found_best in best.items():
        yield lengths, "best", name, *(text for _, text in found_best), "", ""


if __name__ == "__main__":
    main()
