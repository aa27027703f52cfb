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
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TypeVar

from bench.combined.contenders import CONTENDERS, EVERYBODY
from bench.combined.report import number_rows, share_rows
from bench.combined.runs import Case, Question, capacity, fewest_engines, measure
from bench.combined.setting import PROMISE, Load
from bench.harness.arguments import add_out, add_seeds, errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import run_jobs
from bench.harness.tables import print_table
from mesh.jobs.arguments import add_jobs

ASKED = ("capacity", "parts", "engines")
RATE_OF_AN_ENGINE = 1.75  # requests a second, where parts are left out: most promises are kept, and not all
WIDTH = 140

Answer = TypeVar("Answer")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parse(arguments)
    rate = options.rate or RATE_OF_AN_ENGINE * options.engines
    found: dict[str, object] = {}
    with errors_in_a_line():
        if "capacity" in options.ask:
            found["capacity"] = rates = _ask(capacity, CONTENDERS, rate, options)
            title = f"{options.engines} engines: requests/s at which {PROMISE:.0%} keep their promises"
            print_table(title, ("contender",), ("requests/s", "everything: times that"), number_rows(rates), WIDTH)
        if "parts" in options.ask:
            found["parts"] = shares = _ask(measure, EVERYBODY, rate, options)
            numbers = (
                "kept, %",
                "everything: more by",
                "refused, %",
                "TTFT P99, s",
                "TPOT P99, ms",
                "worst service, %",
            )
            title = f"{options.engines} engines at {rate:g} requests/s"
            print_table(title, ("contender",), numbers, share_rows(shares), WIDTH)
        if "engines" in options.ask:
            found["engines"] = counts = _ask(fewest_engines, CONTENDERS, rate, options)
            title = f"engines that keep {PROMISE:.0%} at {rate:g} requests/s: engine-hours of an hour"
            print_table(title, ("contender",), ("engines", "everything: times that"), number_rows(counts), WIDTH)
    write_json(options.out / "combined.json", found)


def _ask(
    work: Callable[[Question], Answer], contenders: Mapping[str, object], rate: float, options: argparse.Namespace
) -> dict[str, list[Answer]]:
    """The answers of each contender by seed: of those that were named, or else of these."""
    names = options.only or list(contenders)
    loads = [Load(rate, options.requests, seed, options.data) for seed in range(options.seeds)]
    asked = [Question(Case(name, options.engines, load), options.out / "runs") for load, name in product(loads, names)]
    answers = run_jobs(work, asked, options.jobs, work.__name__.replace("_", " "))
    found: dict[str, list[Answer]] = {name: [] for name in names}
    for question, answer in zip(asked, answers, strict=True):
        found[question.case.contender].append(answer)
    return found


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = script_parser("bench.combined", __doc__)
    parser.add_argument("--ask", nargs="+", choices=ASKED, default=list(ASKED), help="(default: all three)")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of traces (default: made-up loads like them)")
    parser.add_argument("--engines", type=int, default=16, metavar="N", help="(default: 16)")
    parser.add_argument("--requests", type=int, default=1000, metavar="N", help="of a run (default: 1000)")
    parser.add_argument("--rate", type=float, metavar="R", help="requests/s of parts and engines (default: by engines)")
    parser.add_argument(
        "--only", nargs="+", choices=EVERYBODY, default=[], metavar="NAME", help=", ".join(map(repr, EVERYBODY))
    )
    add_seeds(parser, 2)
    add_jobs(parser)
    add_out(parser, "combined")
    options = parser.parse_args(arguments)
    if options.requests < 100:
        parser.error(f"--requests {options.requests}: too few for six services; use 100 or more")
    if options.engines < 4:
        parser.error(f"--engines {options.engines}: four sizes of models need an engine each; use 4 or more")
    return options


if __name__ == "__main__":
    main()
