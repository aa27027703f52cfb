"""SCLS's evaluation in simulation: eight Llama-2-13B workers on A100s, static batches of slices against whole requests.

    python -m bench.papers.scls [--parts rates ablation lengths workers cost] [--rates R ...] [--seconds 600]
        [--seeds 1] [--jobs N] [--out DIR]

``rates``: throughput and response time of SLS (whole requests), SCLS, and ILS (continuous batching) against the rate.
``ablation``: SO, PM, AB, LB, each with one thing more than the one before. ``lengths``: slices of 16 to 1024 tokens.
``workers``: SCLS's throughput with 1 to 8 workers. All but the first at the middle rate. ``cost``: CPU of
forming batches of 512 requests. Requests and engines are described in `bench.papers.scls.setting`. A run lasts until
the last request has ended, so an overloaded one has a throughput that does not depend on the rate.
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from random import Random

from rich.table import Table

from bench.harness.arguments import add_jobs, add_out, add_seeds, script_parser
from bench.harness.tables import make_console, make_table
from bench.papers.runs import over_seeds, run_cases, write_results
from bench.papers.scls.run import Result, run_case
from bench.papers.scls.setting import (
    LONGEST,
    SLICE_TOKENS,
    Case,
    Kind,
    ablation,
    codefuse_like,
    ils,
    profile,
    slices,
    sls,
)
from engines.scheduling.slices.batching import form_batches
from engines.scheduling.slices.estimates import SliceEstimator

PARTS = ("rates", "ablation", "lengths", "workers", "cost")
RATES = (10.0, 15.0, 20.0, 25.0, 30.0)
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
WORKERS = (1, 2, 4, 8)
NUM_REQUESTS, ROUNDS = 512, 25  # of the cost of batching
PAPER = {  # least and most of what SCLS gains over the first, in per cent: throughput, mean response time, P95
    (Kind.HF, "SLS"): ((232.3, 315.8), (-82.4, -84.9), (-79.8, -81.0)),
    (Kind.DS, "SLS"): ((82.5, 191.9), (-80.8, -91.1), (-76.6, -88.9)),
    (Kind.DS, "ILS, cautious"): ((61.6, 171.0), (-78.4, -88.3), (-74.6, -85.8)),
}
Results = Mapping[Case, Result]


def main() -> None:
    options = _parse()
    cases = {part: list(_cases(part, options)) for part in PARTS if part in options.parts}
    answers = run_cases(run_case, (case for of_part in cases.values() for case in of_part), options.jobs)
    console = make_console(140)
    for part, of_part in cases.items():
        if of_part:
            console.print(_table(part, over_seeds({case: answers[case] for case in of_part})))
    if "rates" in cases:
        console.print(_beside_the_paper(over_seeds({case: answers[case] for case in cases["rates"]})))
    if "cost" in cases:
        console.print(_cost_table())
    write_results(options.out / "slices.json", over_seeds(answers))


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.scls", __doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, metavar="R", help="requests a second")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="of arrivals (default: 600)")
    add_seeds(parser, 1)
    add_jobs(parser)
    add_out(parser, "slices")
    return parser.parse_args()


def _cases(part: str, options: argparse.Namespace) -> Iterator[Case]:
    """Yield what is run for a part. All parts but the first have the middle rate."""
    middle, seconds = options.rates[len(options.rates) // 2], options.seconds
    for kind in Kind:
        for seed in range(options.seeds):
            match part:
                case "rates":
                    for rate in options.rates:
                        for contender in (sls(kind), *(ils() if kind is Kind.DS else ()), slices(kind)):
                            yield Case(kind, contender, rate, seconds, seed)
                case "ablation":
                    yield from (Case(kind, contender, middle, seconds, seed) for contender in ablation(kind))
                case "lengths":
                    for tokens in LENGTHS:
                        yield Case(kind, slices(kind, slice_tokens=tokens), middle, seconds, seed)
                case "workers":
                    yield from (Case(kind, slices(kind), middle, seconds, seed, count) for count in WORKERS)


# --- what is told -----------------------------------------------------------------------------------------------------


def _table(part: str, results: Results) -> Table:
    of_a_request = (f"{heading} a request" for heading in ("pads", "invalid", "slices", "preempted"))
    figures = ("req/s", "slice", "workers", "throughput", "mean, s", "P95, s", "spread, s", "batch", *of_a_request)
    table = make_table(part, ("engine", "scheduler"), figures)
    for case, result in results.items():
        table.add_row(
            case.kind,
            case.contender.name,
            f"{case.rate:g}",
            str(dict(case.contender.parameters).get("slice_tokens", "")),
            str(case.num_workers),
            *(f"{value:.2f}" for value in (result.throughput, result.mean_s, result.p95_s, result.spread_s)),
            f"{result.batch_size:.1f}" if result.batch_size else "",
            *(f"{value:.0f}" for value in (result.pad_tokens, result.invalid_tokens)),
            *(f"{value:.2f}" for value in (result.slices, result.preempted)),
        )
    return table


def _beside_the_paper(results: Results) -> Table:
    """Show what SCLS gains over each other scheduler, over all rates."""
    gains = ("throughput", "paper", "mean response time", "paper", "P95 response time", "paper")
    table = make_table("SCLS against others, per cent: least and most over the rates", ("engine", "against"), gains)
    ours = {(case.kind, case.rate): result for case, result in results.items() if case.contender.name == "SCLS"}
    others: dict[tuple[Kind, str], list[tuple[Result, Result]]] = defaultdict(list)
    for case, result in results.items():
        if case.contender.name != "SCLS":
            others[case.kind, case.contender.name].append((ours[case.kind, case.rate], result))
    for (kind, name), pairs in others.items():
        paper = PAPER.get((kind, name), (None, None, None))
        cells: list[str] = []
        for field, said in zip(("throughput", "mean_s", "p95_s"), paper, strict=True):
            gained = sorted(100 * (getattr(own, field) / getattr(other, field) - 1) for own, other in pairs)
            cells += [f"{gained[0]:+.0f} to {gained[-1]:+.0f}", "" if said is None else f"{said[0]:+g} to {said[1]:+g}"]
        table.add_row(kind, name, *cells)
    return table


def _cost_table() -> Table:
    """Measure the CPU time, each time with costs that were not seen before."""
    table = make_table(
        f"forming batches of {NUM_REQUESTS} requests, ms of CPU", ("input lengths",), ("median", "most", "batches")
    )
    random, known = Random(0), profile(Kind.DS)
    slots = known.kv_memory_bytes // known.kv_bytes_per_token
    pools = {
        "CodeFuse-like": [request.num_input for request in codefuse_like()],
        "1 to 60": range(1, 61),
        "1 to 1024, each once": range(1, LONGEST + 1),
    }
    for name, pool in pools.items():
        times, num_batches = list[float](), 0
        for _ in range(ROUNDS):
            lengths = random.sample(pool, NUM_REQUESTS) if len(pool) > NUM_REQUESTS else random.choices(pool, k=512)
            started = time.process_time()
            batches = form_batches(lengths, SliceEstimator(known.prefill, known.decode, slots, SLICE_TOKENS))
            times.append(1e3 * (time.process_time() - started))
            num_batches = len(batches)
        table.add_row(name, f"{statistics.median(times):.2f}", f"{max(times):.2f}", str(num_batches))
    return table
