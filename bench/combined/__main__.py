"""Everything on, beside its parts left out, every single policy, and routers of others: 16 engines, six services.

    python -m bench.combined [--ask capacity parts engines] [--data FOLDER] [--engines 16] [--seeds 2] [--rate R]
        [--requests 1000] [--only NAME ...] [--jobs N] [--out FOLDER]

In simulation: engines of four sizes, some of which are shared by two services; three keys with a priority each;
promises for who types, who reads, and by the length of the prompt (`bench.combined.setting`). ``capacity`` is the rate
up to which 90 % of all requests keep their promises. ``parts`` leaves one part out after the other, at one rate.
``engines`` is how many of them it takes at that rate. Intervals are of paired seeds.

Runs are kept below ``--out``: interrupted, or with another question, the bench goes on where it was.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from bench.combined.contenders import ALL_ON, CONTENDERS, EVERYBODY
from bench.combined.runs import Case, Result, capacity, fewest_engines, run_case
from bench.combined.setting import PROMISE, Load
from bench.harness.arguments import add_names, errors_in_a_line, script_parser
from bench.harness.jobs import grouped
from bench.harness.long_runs import LongRuns
from bench.harness.paired import difference, ratio
from bench.harness.tables import print_table

RATE_OF_AN_ENGINE = 1.75  # requests a second, where parts are left out: most promises are kept, and not all
SECONDS_A_REQUEST, RUNS_OF_A_SEARCH = 0.03, 6  # of one core
WIDTH = 140


def run_s(case: Case) -> float:
    """The seconds that a run takes, roughly."""
    return SECONDS_A_REQUEST * case.load.num_requests


def search_s(case: Case) -> float:
    return RUNS_OF_A_SEARCH * run_s(case)


def number_rows(found: Mapping[str, Sequence[float]]) -> Iterator[Sequence[str]]:
    """Of each contender the mean over seeds, and everything on as so many times that."""
    for name, values in found.items():
        times = ratio(found[ALL_ON], values).text() if name != ALL_ON and ALL_ON in found else ""
        yield name, f"{fmean(values):.1f}", times


def share_rows(found: Mapping[str, Sequence[Result]]) -> Iterator[Sequence[str]]:
    """Of each contender what it kept, what everything on kept more, and where promises were lost. In per cent and s."""
    ours = [100 * one.attainment for one in found.get(ALL_ON, ())]
    for name, results in found.items():
        kept = [100 * one.attainment for one in results]
        more = difference(ours, kept).text(1) if ours and name != ALL_ON else ""
        lost = {
            service: fmean(1 - one.by_service[service] for one in results) for service in sorted(results[0].by_service)
        }
        worst = max(lost, key=lost.__getitem__)
        tails = fmean(one.ttft_p99_s for one in results), 1e3 * fmean(one.tpot_p99_s for one in results)
        rejected = 100 * fmean(one.rejected for one in results)
        cells = f"{fmean(kept):.1f}", more, f"{rejected:.1f}", f"{tails[0]:.1f}", f"{tails[1]:.0f}"
        yield name, *cells, f"{worst}, {100 * (1 - lost[worst]):.0f}"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of contenders, and the table of what comes of it, by contender and seed."""

    runs: LongRuns[Case, Any]
    contenders: Mapping[str, object]
    title: str
    numbers: Sequence[str]
    rows: Callable[[Mapping[str, Sequence[Any]]], Iterable[Sequence[str]]]


SHARES = "kept, %", "everything: more by", "refused, %", "TTFT P99, s", "TPOT P99, ms", "worst service, %"
QUESTIONS: Final = {
    "capacity": Question(
        LongRuns(capacity, float, search_s),
        CONTENDERS,
        f"{{engines}} engines: requests/s at which {PROMISE:.0%} keep their promises",
        ("requests/s", "everything: times that"),
        number_rows,
    ),
    "parts": Question(
        LongRuns(run_case, Result, run_s), EVERYBODY, "{engines} engines at {rate:g} requests/s", SHARES, share_rows
    ),
    "engines": Question(
        LongRuns(fewest_engines, float, search_s),
        CONTENDERS,
        f"engines that keep {PROMISE:.0%} at {{rate:g}} requests/s: engine-hours of an hour",
        ("engines", "everything: times that"),
        number_rows,
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    rate = options.rate or RATE_OF_AN_ENGINE * options.engines
    loads = [Load(rate, options.requests, seed, options.data) for seed in range(options.seeds)]
    for asked in (name for name in QUESTIONS if name in options.ask):
        one = QUESTIONS[asked]
        cases = [Case(name, options.engines, load) for load, name in product(loads, options.only or one.contenders)]
        with errors_in_a_line():
            results = one.runs.run(cases, options.jobs, options.out, asked)
        found = grouped(results, lambda case: case.contender)
        title = one.title.format(engines=options.engines, rate=rate)
        print_table(title, ("contender",), one.numbers, one.rows(found), WIDTH)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = script_parser("bench.combined", __doc__, seeds=2, jobs=True, out="combined")
    add_names(parser, "--ask", QUESTIONS)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of traces (default: made-up loads like them)")
    parser.add_argument("--engines", type=int, default=16, metavar="N", help="(default: 16)")
    parser.add_argument("--requests", type=int, default=1000, metavar="N", help="of a run (default: 1000)")
    parser.add_argument("--rate", type=float, metavar="R", help="requests/s of parts and engines (default: by engines)")
    parser.add_argument(
        "--only", nargs="+", choices=EVERYBODY, default=[], metavar="NAME", help=", ".join(map(repr, EVERYBODY))
    )
    options = parser.parse_args(arguments)
    if options.requests < 100:
        parser.error(f"--requests {options.requests}: too few for six services; use 100 or more")
    if options.engines < 4:
        parser.error(f"--engines {options.engines}: four sizes of models need an engine each; use 4 or more")
    return options


if __name__ == "__main__":
    main()
