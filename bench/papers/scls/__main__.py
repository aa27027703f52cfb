"""SCLS's evaluation in simulation: eight Llama-2-13B workers on A100s, static batches of slices against whole requests.

    python -m bench.papers.scls [--rates R ...] [--seconds 600] [--jobs N] [--out DIR]

Throughput and response time of SLS (whole requests), SCLS, and ILS (continuous batching) by rate. Requests and engines
are described in `bench.papers.scls.setting`. A run lasts until the last request has ended, so an overloaded one has a
throughput that does not depend on the rate.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from bench.harness.arguments import add_out, script_parser
from bench.harness.tables import print_table
from bench.papers.scls.setting import CONTENDERS, Case, Kind, Result, run_case
from bench.simulated import run_cases, write_results
from mesh.jobs.arguments import add_jobs

RATES = (10.0, 15.0, 20.0, 25.0, 30.0)
FIGURES = ("throughput", "mean_s", "p95_s")
PAPER = {  # least and most of what SCLS gains over the first, in per cent, by figure
    (Kind.HF, "SLS"): ((232.3, 315.8), (-82.4, -84.9), (-79.8, -81.0)),
    (Kind.DS, "SLS"): ((82.5, 191.9), (-80.8, -91.1), (-76.6, -88.9)),
    (Kind.DS, "ILS"): ((61.6, 171.0), (-78.4, -88.3), (-74.6, -85.8)),
}
WIDTH = 140  # characters of tables
Results = Mapping[Case, Result]


def main() -> None:
    options = _parse()
    results = run_cases(run_case, list(_cases(options)), options.jobs)
    figures = ("req/s", "throughput", "mean, s", "P95, s", "spread, s", "slices a request")
    print_table("by rate", ("engine", "scheduler"), figures, map(_cells, results.items()), WIDTH)
    headings = ("throughput", "paper", "mean response time", "paper", "P95 response time", "paper")
    title = "SCLS against others, per cent: least and most over the rates"
    print_table(title, ("engine", "against"), headings, _beside_the_paper(results), WIDTH)
    write_results(options.out / "slices.json", results)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.scls", __doc__)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, metavar="R", help="requests a second")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="of arrivals (default: 600)")
    add_jobs(parser)
    add_out(parser, "slices")
    return parser.parse_args()


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    for kind, contenders in CONTENDERS.items():
        for rate, contender in product(options.rates, contenders):
            yield Case(kind, contender, rate, options.seconds)


def _cells(found: tuple[Case, Result]) -> Sequence[str]:
    case, one = found
    values = one.throughput, one.mean_s, one.p95_s, one.spread_s, one.slices
    return case.kind, case.contender.name, f"{case.rate:g}", *(f"{value:.2f}" for value in values)


def _beside_the_paper(results: Results) -> Iterator[Sequence[str]]:
    for kind, (*others, ours) in CONTENDERS.items():
        own = {case: result for case, result in results.items() if (case.kind, case.contender) == (kind, ours)}
        for other in others:
            pairs = [(result, results[replace(case, contender=other)]) for case, result in own.items()]
            cells: list[str] = []
            for figure, (least, most) in zip(FIGURES, PAPER[kind, other.name], strict=True):
                gained = sorted(100 * (getattr(one, figure) / getattr(its, figure) - 1) for one, its in pairs)
                cells += [f"{gained[0]:+.0f} to {gained[-1]:+.0f}", f"{least:+g} to {most:+g}"]
            yield kind, other.name, *cells


if __name__ == "__main__":
    main()
