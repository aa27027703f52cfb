"""Many seeded simulations in which everything goes wrong that can, with what must hold checked after every event.

    python -m tests.tools.fault_runs --runs 10000 [--seed-from 0] [--jobs N | --on ray[:ADDRESS]] [--only KINDS]
    python -m tests.tools.fault_runs --seed 1234 [--verbose] [--reduce]

The product's dispatchers, policies, engine cores, block pools and transfer machines serve requests. Meanwhile engines
and gateways die, hang and slow down, and links break. Messages are lost, late, doubled and overtaken. Requests are
moved by hand, and clients leave. Engines are drained, change roles, unload and load services and restart. Exits with 1
if any run fails, and prints how to repeat it. ``--verbose`` tells what happened to the request that failed,
``--reduce`` first leaves out all that the failure does not need.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from bench.harness.arguments import script_parser
from bench.harness.jobs import run_jobs
from bench.harness.tables import print_table
from mesh.jobs.runner import JobPlace
from tests.tools.fault_runs.draws import KINDS, ORDERS
from tests.tools.fault_runs.play import PLANS, Failure, Results, Tally, run_some
from tests.tools.fault_runs.scenario import draw
from tests.tools.fault_runs.story import reduced, tell

RUNS_AT_A_TIME = 10  # of a worker
ALL = (*KINDS, *ORDERS)


def main() -> int:
    options = _parse()
    if options.seed is not None:
        return _repeat(options)
    tally, failures = _run_all(range(options.seed_from, options.seed_from + options.runs), options.only, options.jobs)
    for title in dict.fromkeys(title for title, _ in tally if title != PLANS):  # plans are too many kinds for a table
        rows = ((what, f"{count:,}") for (of_table, what), count in tally.most_common() if of_table == title)
        print_table("", (title,), ("times",), rows)
    chosen = "" if len(options.only) == len(ALL) else f" --only {','.join(options.only)}"
    for failure in failures:
        print(f"{failure}\n    python -m tests.tools.fault_runs --seed {failure.seed}{chosen} --verbose")
    return 1 if failures else 0


def _parse() -> argparse.Namespace:
    parser = script_parser("tests.tools.fault_runs", __doc__, jobs=True)
    parser.add_argument("--runs", type=int, default=1000, metavar="N", help="how many (default: 1000)")
    parser.add_argument("--seed-from", type=int, default=0, metavar="S", help="seeds S, S + 1, ... (default: 0)")
    parser.add_argument("--seed", type=int, metavar="S", help="this one alone")
    parser.add_argument("--verbose", action="store_true", help="with --seed: what happened to the request that failed")
    parser.add_argument("--reduce", action="store_true", help="with --seed: leave out what its failure does not need")
    parser.add_argument("--only", type=_kinds, default=ALL, metavar="A,B", help=f"of {', '.join(ALL)}")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs: use a whole number of at least 1")
    return options


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    if unknown := [kind for kind in kinds if kind not in ALL]:
        raise argparse.ArgumentTypeError(f"no {unknown[0]!r}; there are {', '.join(ALL)}")
    return kinds


def _run_all(seeds: Sequence[int], only: Sequence[str], jobs: JobPlace) -> Results:
    parts = [seeds[index : index + RUNS_AT_A_TIME] for index in range(0, len(seeds), RUNS_AT_A_TIME)]
    tally, failures = Tally(), list[Failure]()
    for some, failed in run_jobs(partial(run_some, only), parts, jobs, f"{RUNS_AT_A_TIME} runs each"):
        tally += some
        failures += failed
    return tally, failures


def _repeat(options: argparse.Namespace) -> int:
    scenario = draw(options.seed, options.only)
    if options.reduce:
        scenario = reduced(scenario)
    failure, lines = tell(scenario)
    if options.verbose or options.reduce:
        print(*lines, sep="\n")
    if failure is None:
        print(f"seed {options.seed}: all that must hold held")
        return 0
    print(*([failure.trace] if options.verbose else []), failure, sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
