"""Tropical's figure: how many requests engines serve with 90 % of them inside their SLOs, by policy.

    python -m bench.papers.tropical --mooncake FILE [--models NAME ...] [--workloads Mooncake LongBench-like]
        [--engines 2] [--only NAME ...] [--requests 600] [--seeds 5] [--jobs N] [--out DIR]

In simulation: InternLM2.5-20B on A100s with tensor parallelism 2 and Llama-2-70B with 4, two engines each or more. The
TTFT SLO is 5 times the unloaded prefill, the TPOT SLO is 100 ms. Loads are Mooncake's conversation with its own
arrivals (at another rate), and lengths like LongBench's with Poisson arrivals. Each policy is searched, seed by seed,
for the highest rate at which the promise holds; colocated engines with chunked prefill are tried with several chunk
sizes, and the best one counts. Baselines run as their papers have them, and with early rejection besides. At the rate
that tropical serves, all are compared once more: P90 of TTFT beside disaggregated, of TPOT beside colocated, and how
long requests take and queue.

Runs are kept below ``--out``: interrupted, or with another question, the bench goes on where it was.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from bench.harness.arguments import add_names, errors_in_a_line, script_parser
from bench.harness.jobs import grouped
from bench.harness.long_runs import LongRuns
from bench.harness.paired import Compared, ratio
from bench.harness.tables import print_table
from bench.papers.tropical.setting import (
    CONTENDERS,
    MODELS,
    PERCENTS,
    PROMISE,
    Case,
    Latencies,
    Rated,
    Workload,
    measure,
    search,
)
from simulation.capacity import FoundCapacity

OURS = "tropical", "elastic"  # policies
PAPERS = "colocated", "disaggregated"  # what the paper compares with: vLLM and DistServe as they were
MEASURED = "tropical"  # at whose rate latencies are compared
SECONDS_A_REQUEST, RUNS_OF_A_SEARCH = 0.002, 8
WORDS, WIDTH = ("model", "workload", "policy"), 140  # of tables

Group = tuple[str, str]  # model and workload
Result = TypeVar("Result")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    cases = list(_cases(options))
    with errors_in_a_line():
        searches = LongRuns(search, FoundCapacity, lambda one: RUNS_OF_A_SEARCH * SECONDS_A_REQUEST * one.num_requests)
        found = searches.run(cases, options.jobs, options.out, "capacities")
    rates = by_contender({case: one.rate for case, one in found.items()})
    headings = "requests/s", "x the best baseline", "x the paper's best"
    title = (
        f"requests/s at {PROMISE:.0%}, {options.engines} engines, means of {options.seeds} seeds of {options.requests}"
    )
    print_table(title, WORDS, headings, capacity_rows(rates), WIDTH)
    rated = [Rated(case, _measured_rate(rates, case)) for case in cases if _measured_rate(rates, case) > 0]
    at_rate = LongRuns(measure, Latencies, lambda one: SECONDS_A_REQUEST * one.case.num_requests)
    told = at_rate.run(rated, options.jobs, options.out, "latencies")
    latencies = {one.case: result for one, result in told.items()}
    measured = "kept, %", "TTFT P90, s", "tropical: x shorter", "TPOT P90, ms", "tropical: x shorter", "e2e P50, P90, s"
    title = f"at the requests/s that {MEASURED} serves"
    print_table(title, WORDS, (*measured, "TTFT P90 / prefill"), latency_rows(latencies), WIDTH)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = script_parser("bench.papers.tropical", __doc__, seeds=5, jobs=True, out="tropical_figure")
    parser.add_argument("--mooncake", type=Path, required=True, metavar="FILE", help="conversation_trace.jsonl(.gz)")
    add_names(parser, "--models", MODELS)
    add_names(parser, "--workloads", (Workload(Path()).name, Workload().name))
    parser.add_argument("--engines", type=int, default=2, metavar="N", help="half of which prefill (default: 2)")
    add_names(parser, "--only", CONTENDERS)
    parser.add_argument("--requests", type=int, default=600, metavar="N", help="of each run (default: 600)")
    options = parser.parse_args(arguments)
    if options.engines < 2:
        parser.error(f"--engines {options.engines}: disaggregated needs an engine for each phase; use 2 or more")
    return options


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    seeds = range(options.seeds)
    for model, name, contender, seed in product(options.models, options.workloads, options.only, seeds):
        trace = options.mooncake if name == Workload(options.mooncake).name else None
        workload = Workload(trace, MODELS[model].context)
        yield Case(model, workload, contender, options.requests, seed, options.engines)


def by_contender(found: Mapping[Case, Result]) -> dict[Group, dict[str, Sequence[Result]]]:
    """Results of all seeds, by model and workload, then by contender."""
    groups: dict[Group, dict[str, Sequence[Result]]] = {}
    for case, own in grouped(found, lambda case: replace(case, seed=0)).items():
        groups.setdefault((case.model, case.workload.name), {})[case.contender] = own
    return groups


def _measured_rate(rates: Mapping[Group, Mapping[str, Sequence[float]]], case: Case) -> float:
    own = rates[case.model, case.workload.name].get(MEASURED)
    return fmean(own) if own else 0.0


def capacity_rows(rates: Mapping[Group, Mapping[str, Sequence[float]]]) -> Iterator[Sequence[str]]:
    """Rates, beside the best of the policies that are not ours, and beside the better of the paper's."""
    for group, own in rates.items():
        rivals = [name for name in own if CONTENDERS[name].policy not in OURS]
        best, papers = (
            max(names, key=lambda name: fmean(own[name]), default=None)
            for names in (rivals, [name for name in rivals if name in PAPERS])
        )
        for name, values in own.items():
            ratios = ("" if other in (None, name) else ratio(values, own[other]).text() for other in (best, papers))
            mark = " (best baseline)" if name == best else ""
            yield *group, f"{name}{mark}", f"{fmean(values):.3f}", *ratios


def latency_rows(found: Mapping[Case, Latencies]) -> Iterator[Sequence[str]]:
    """Means of seeds; how many times shorter tropical's P90 are is of pairs."""
    median, tail = PERCENTS.index(50), PERCENTS.index(90)
    for group, by_name in by_contender(found).items():
        ours = by_name[MEASURED]
        for name, own in by_name.items():
            times = ["", ""]
            if name != MEASURED:
                times = [compared.text() for compared in _shorter(ours, own)]
            e2e = ", ".join(f"{fmean(one.e2e_s[index] for one in own):.1f}" for index in (median, tail))
            ttft, tpot = fmean(one.ttft_p90_s for one in own), 1e3 * fmean(one.tpot_p90_s for one in own)
            kept, stretch = 100 * fmean(one.attainment for one in own), fmean(one.stretch[tail] for one in own)
            cells = f"{kept:.1f}", f"{ttft:.2f}", times[0], f"{tpot:.0f}", times[1], e2e, f"{stretch:.1f}"
            yield *group, name, *cells


def _shorter(ours: Sequence[Latencies], theirs: Sequence[Latencies]) -> Iterator[Compared]:
    """How many times shorter our P90 of TTFT is, and of TPOT."""
    yield ratio([one.ttft_p90_s for one in theirs], [one.ttft_p90_s for one in ours])
    yield ratio([one.tpot_p90_s for one in theirs], [one.tpot_p90_s for one in ours])


if __name__ == "__main__":
    main()
