"""SCLS's evaluation in simulation: eight Llama-2-13B workers on A100s, static batches of slices against whole requests.

    python -m bench.papers.scls [--ask rates limits parts workers] [--only HF DS] [--rates R ...] [--seconds 600]

``rates``: throughput and response time of SLS (whole requests), SCLS, and ILS (continuous batching) by rate.
``limits``: ILS with so many requests at a time, beside SCLS. ``parts``: what each part of SCLS adds, and ``workers``:
more of them, both at 20 requests/s. Requests and engines are described in `bench.papers.scls.setting`. A run lasts
until the last request has ended, as in the paper, so an overloaded one has a throughput that does not depend on the
rate; it is marked.

Runs are kept below ``--out``: interrupted, or with another question, the bench goes on where it was.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean

from bench.harness.arguments import add_names, script_parser
from bench.harness.jobs import grouped
from bench.harness.long_runs import LongRuns
from bench.harness.paired import ratio
from bench.harness.tables import print_table
from bench.papers.scls.setting import CONTENDERS, Case, Contender, Kind, Result, ils, parts, run_case, scls

ASKED = ("rates", "limits", "parts", "workers")
RATES = (10.0, 15.0, 20.0, 25.0, 30.0)
RATE = 20.0  # of the paper's sections 5.4 to 5.6
LIMITS = (4, 8, 16, 32)
WORKERS = (2, 4, 8)
FIGURES = ("throughput", "mean_s", "p95_s")
PAPER = {  # least and most of what SCLS gains over the first, in per cent, by figure
    (Kind.HF, "SLS"): ((232.3, 315.8), (-82.4, -84.9), (-79.8, -81.0)),
    (Kind.DS, "SLS"): ((82.5, 191.9), (-80.8, -91.1), (-76.6, -88.9)),
    (Kind.DS, "ILS"): ((61.6, 171.0), (-78.4, -88.3), (-74.6, -85.8)),
}
SECONDS_A_REQUEST = 0.003  # of one core
WIDTH = 160  # characters of tables
Results = Mapping[Case, Result]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    asked = dict.fromkeys(_cases(options))
    runs = LongRuns(run_case, Result, lambda case: SECONDS_A_REQUEST * case.rate * case.seconds)
    results = runs.run([*asked], options.jobs, options.out, "slices")
    figures = ("req/s", "workers", "throughput", "mean, s", "P95, s", "spread, s", "slices a request", "early, %", "")
    print_table(f"means of {options.seeds} seeds", ("engine", "scheduler"), figures, _rows(results), WIDTH)
    headings = ("req/s", *(word for name in ("throughput", "mean", "P95") for word in (name, "paper")))
    title = "SCLS against others, per cent, with 95 % intervals of paired seeds"
    print_table(title, ("engine", "against"), headings, _beside_the_paper(results), WIDTH)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = script_parser("bench.papers.scls", __doc__, seeds=1, jobs=True, out="slices")
    add_names(parser, "--ask", ASKED)
    add_names(parser, "--only", map(str, Kind))
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, metavar="R", help="requests a second")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="of arrivals (default: 600)")
    return parser.parse_args(arguments)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    for kind in map(Kind, options.only):
        contenders = CONTENDERS[kind]
        chosen: list[tuple[Contender, float, int]] = []
        if "rates" in options.ask:
            chosen += [(one, rate, WORKERS[-1]) for one, rate in product(contenders, options.rates)]
        if "limits" in options.ask and kind is Kind.DS:
            limited = [*map(ils, LIMITS), scls(kind)]
            chosen += [(one, rate, WORKERS[-1]) for one, rate in product(limited, options.rates)]
        if "parts" in options.ask:
            chosen += [(one, RATE, WORKERS[-1]) for one in parts(kind)]
        if "workers" in options.ask:
            chosen += [(scls(kind), RATE, number) for number in WORKERS]
        for (contender, rate, workers), seed in product(chosen, range(options.seeds)):
            yield Case(kind, contender, rate, options.seconds, seed, workers)


def _rows(results: Results) -> Iterator[Sequence[str]]:
    for case, own in grouped(results, lambda case: replace(case, seed=0)).items():
        names = "throughput", "mean_s", "p95_s", "spread_s", "slices"
        values = [fmean(getattr(one, name) for one in own) for name in names]
        early, mark = 100 * fmean(one.early for one in own), "overloaded" if any(one.grows for one in own) else ""
        words = case.kind, case.contender.name, f"{case.rate:g}", str(case.num_workers)
        yield *words, *(f"{value:.2f}" for value in values), f"{early:.1f}", mark


def _beside_the_paper(results: Results) -> Iterator[Sequence[str]]:
    """SCLS against each other that ran beside it. The paper's are its least and most over the rates."""
    by_seed = grouped(results, lambda case: replace(case, seed=0))
    for case, own in by_seed.items():
        ours = by_seed.get(replace(case, contender=scls(case.kind)))
        if ours is None or case.contender == scls(case.kind):
            continue
        stated = PAPER.get((case.kind, case.contender.name.partition(",")[0]))
        cells: list[str] = []
        for number, figure in enumerate(FIGURES):
            least, most = stated[number] if stated else (0.0, 0.0)
            cells += [_gain(ours, own, figure), f"{least:+g} to {most:+g}" if stated else ""]
        yield case.kind, case.contender.name, f"{case.rate:g}", *cells


def _gain(ours: Sequence[Result], theirs: Sequence[Result], figure: str) -> str:
    found = ratio([getattr(one, figure) for one in ours], [getattr(one, figure) for one in theirs])
    mean, *bounds = (f"{100 * (value - 1):+.0f}" for value in (found.mean, found.low, found.high) if value is not None)
    return f"{mean} ({bounds[0]} to {bounds[1]})" if bounds else mean


if __name__ == "__main__":
    main()
