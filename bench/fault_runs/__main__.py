"""Many seeded simulations in which everything goes wrong that can, with what must hold checked after every event.

    python -m bench.fault_runs --runs 10000 [--seed-from 0] [--jobs N] [--only KINDS]
    python -m bench.fault_runs --seed 1234 [--verbose] [--reduce]

The product's dispatchers, policies, engine cores, block pools and transfer machines serve requests while engines and
gateways die, hang and slow down, links break, messages are lost, late, doubled and overtaken, requests are moved by
hand, engines are drained, change roles, unload and load services and restart, and clients leave. Exits with 1 if any
run fails, and prints how to repeat it. ``--verbose`` tells what happened to the request that failed, ``--reduce`` first
leaves out all that the failure does not need.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from rich.console import Console
from rich.progress import TextColumn

from bench.fault_runs.play import Failure, Results, Tally, run_some
from bench.fault_runs.reduce import reduced
from bench.fault_runs.report import tables
from bench.fault_runs.scenario import KINDS, ORDERS, draw
from bench.fault_runs.story import tell
from bench.harness.arguments import add_jobs, script_parser
from bench.harness.jobs import progress_bar

RUNS_AT_A_TIME = 10  # of a worker, between two steps of the bar
MOST_TOLD = 20  # failures


def main() -> int:
    options = _parse()
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    if options.seed is not None:
        return _repeat(options, console)
    tally, failures = _run_all(range(options.seed_from, options.seed_from + options.runs), options.only, options.jobs)
    for table in tables(tally):
        console.print(table)
    _tell_failures(failures, options.only, console)
    return 1 if failures else 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.fault_runs", __doc__)
    parser.add_argument("--runs", type=int, default=1000, metavar="N", help="how many (default: 1000)")
    parser.add_argument("--seed-from", type=int, default=0, metavar="S", help="seeds S, S + 1, ... (default: 0)")
    parser.add_argument("--seed", type=int, metavar="S", help="this one alone")
    parser.add_argument("--verbose", action="store_true", help="with --seed: what happened to the request that failed")
    parser.add_argument("--reduce", action="store_true", help="with --seed: leave out what its failure does not need")
    parser.add_argument(
        "--only", type=_kinds, default=(*KINDS, *ORDERS), metavar="A,B", help=f"of {', '.join((*KINDS, *ORDERS))}"
    )
    add_jobs(parser)
    options = parser.parse_args()
    if options.runs < 1 or options.jobs < 1:
        parser.error("--runs and --jobs: use a whole number of at least 1")
    return options


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    unknown = [kind for kind in kinds if kind not in (*KINDS, *ORDERS)]
    if unknown:
        raise argparse.ArgumentTypeError(f"no {unknown[0]!r}; there are {', '.join((*KINDS, *ORDERS))}")
    return kinds


# --- many runs --------------------------------------------------------------------------------------------------------


def _run_all(seeds: Sequence[int], only: Sequence[str], jobs: int) -> Results:
    tally, failures = Tally(), []
    parts = [seeds[index : index + RUNS_AT_A_TIME] for index in range(0, len(seeds), RUNS_AT_A_TIME)]
    with (
        progress_bar(TextColumn("{task.fields[failed]} failed")) as progress,
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
    ):
        task = progress.add_task("runs", total=len(seeds), failed=0)
        futures: list[Future[Results]] = [pool.submit(run_some, part, only) for part in parts]
        for future in as_completed(futures):
            some, failed = future.result()
            tally.add(some)
            failures += failed
            progress.update(task, advance=some.num_runs, failed=len(failures))
    return tally, sorted(failures, key=lambda failure: failure.seed)


def _tell_failures(failures: Sequence[Failure], only: Sequence[str], console: Console) -> None:
    for failure in failures[:MOST_TOLD]:
        console.print(str(failure), soft_wrap=True, markup=False)
        console.print(f"    {_command(failure.seed, only)}", soft_wrap=True)
    if len(failures) > MOST_TOLD:
        console.print(f"and {len(failures) - MOST_TOLD} more: seeds {[one.seed for one in failures[MOST_TOLD:]]}")


def _command(seed: int, only: Sequence[str]) -> str:
    chosen = "" if len(only) == len(KINDS) + len(ORDERS) else f" --only {','.join(only)}"
    return f"python -m bench.fault_runs --seed {seed}{chosen} --verbose"


# --- one run ----------------------------------------------------------------------------------------------------------


def _repeat(options: argparse.Namespace, console: Console) -> int:
    scenario = draw(options.seed, options.only)
    if options.reduce:
        scenario = reduced(scenario)
    failure, lines = tell(scenario)
    if options.verbose or options.reduce:
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)
    if failure is None:
        console.print(f"seed {options.seed}: all that must hold held")
        return 0
    if options.verbose:
        console.print(failure.trace, soft_wrap=True, markup=False)
    console.print(str(failure), soft_wrap=True, markup=False)
    return 1


if __name__ == "__main__":
    sys.exit(main())
