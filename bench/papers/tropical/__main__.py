"""Tropical's figure: how many requests a pair of engines serves with 90 % of them inside their SLOs, by policy.

    python -m bench.papers.tropical --mooncake FILE --arxiv FILE [--requests 600] [--seeds 3] [--out DIR]

In simulation: Llama-2-70B on A100s with tensor parallelism 4 and InternLM2.5-20B with 2, two engines each, TTFT SLO 5
times the unloaded prefill, TPOT SLO 100 ms; Mooncake's conversation with its own arrivals (at another rate), and
arXiv summaries (long input, short output) with Poisson arrivals. Each policy is searched for the highest rate at which
the promise holds; colocated engines with chunked prefill are tried with several chunk sizes, and the best one counts.
Baselines run as their papers have them, and with early rejection besides.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from bench.harness.arguments import add_out, add_seeds, script_parser
from bench.harness.jobs import run_jobs
from bench.harness.tables import print_table
from bench.papers.tropical.setting import CONTENDERS, MODELS, PROMISE, Search, Workload, run_search
from bench.simulated import write_results
from mesh.jobs.arguments import add_jobs
from simulation.capacity import FoundCapacity
from simulation.loads.traces import load_lengths, load_trace

OURS = ("tropical", "elastic")
PAPERS = ("colocated", "disaggregated")  # what the paper compares with: vLLM and DistServe as they were
Found = Sequence[tuple[Search, FoundCapacity]]


def main() -> None:
    options = _parse()
    searches = list(_searches(options))
    found = list(zip(searches, run_jobs(run_search, searches, options.jobs, "searches"), strict=True))
    numbers = ("req/s", "x best baseline", "x the paper's", "runs")
    title, words = f"requests a second at {PROMISE:.0%} attainment", ("model", "workload", "policy", "chunk")
    print_table(title, words, numbers, _rows(found))
    write_results(options.out / "capacities.json", {search.name: capacity for search, capacity in found})


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.tropical", __doc__)
    parser.add_argument("--mooncake", type=Path, required=True, metavar="FILE", help="conversation_trace.jsonl(.gz)")
    parser.add_argument("--arxiv", type=Path, required=True, metavar="FILE", help="input_tokens, output_tokens")
    parser.add_argument("--requests", type=int, default=600, metavar="N", help="of each run (default: 600)")
    add_seeds(parser, 3)
    add_jobs(parser)
    add_out(parser, "tropical_figure")
    return parser.parse_args()


def _searches(options: argparse.Namespace) -> Iterator[Search]:
    mooncake = Workload("Mooncake", load_trace(options.mooncake, Random("spread")), has_arrivals=True)
    arxiv = Workload("arXiv", load_lengths(options.arxiv), has_arrivals=False)
    for model in MODELS:
        for workload in (mooncake, arxiv):
            for contender in CONTENDERS:
                yield Search(model, workload, contender, options.requests, options.seeds)


def _rows(found: Found) -> Iterator[Sequence[str]]:
    """Rates, beside the best of the policies that are not ours, and beside the better of the paper's."""
    for search, capacity in found:
        load, contender = (search.model, search.workload.name), search.contender
        rivals = [(one.contender, its.rate) for one, its in found if (one.model, one.workload.name) == load]
        best = max(rate for rival, rate in rivals if rival.policy not in OURS)
        papers = max(rate for rival, rate in rivals if rival.name in PAPERS)
        numbers = f"{capacity.rate:.3f}", _ratio(capacity, best), _ratio(capacity, papers), str(len(capacity.trials))
        yield *load, contender.name, str(contender.chunk_tokens), *numbers


def _ratio(capacity: FoundCapacity, rate: float) -> str:
    return f"{capacity.rate / rate:.2f}" if rate else "-"


if __name__ == "__main__":
    main()
