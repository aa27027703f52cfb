"""Role flips under a load that shifts: engines that change roles beside engines that keep them.

    python -m bench.placement.role_flips [--seeds 2] [--phase 120] [--only WORDS] [--jobs N] [--out DIR]

In simulation: eight engines with Llama-2-70B on four A100s each, half of them prefill engines to begin with. First come
long prompts with short answers, then short prompts with long answers, then the former again. Tropical and elastic run
with and without `flips`, and Tropical with other splits that stay as they are: what flips bring is one thing, what a
better split would bring another. Then the same engines under loads that stay the same, where flips should end.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress

from bench.harness.arguments import script_parser
from bench.placement.role_flips_report import plot, shifting_table, steady_table
from bench.placement.role_flips_run import (
    CONTENDERS,
    SETTLED_S,
    SHIFTING,
    STEADY,
    STEADY_PHASES,
    Result,
    Run,
    run_result,
)


def main() -> int:
    options = _parse()
    words = options.only.split()
    runs = [run for run in _runs(options) if all(word in run.name for word in words)]
    results = _carry_out(runs, options.jobs)
    shifting = {run: result for run, result in results.items() if len(run.phases) > 1}
    steady = {run: result for run, result in results.items() if len(run.phases) == 1}
    options.out.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 120)
    if shifting:
        console.print(shifting_table(shifting))
        console.print(f"drew {plot(options.out / 'role_flips.png', shifting)}")
    if steady:
        console.print(steady_table(steady))
    lines = [(run.name, run.seed, result) for run, result in results.items()]
    (options.out / "runs.json").write_bytes(msgspec.json.format(msgspec.json.encode(lines)))
    return 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.placement.role_flips", __doc__)
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="runs of each (default: 2)")
    parser.add_argument("--phase", type=float, default=120.0, metavar="S", help="seconds of a phase (default: 120)")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="runs whose load and policy have all of these words"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="runs at a time")
    parser.add_argument("--out", type=Path, default=Path("role_flips"), metavar="DIR")
    options = parser.parse_args()
    if options.phase <= SETTLED_S:
        parser.error(f"--phase: {options.phase:g} does not fit; use more than {SETTLED_S:g} s")
    return options


def _runs(options: argparse.Namespace) -> Iterator[Run]:
    for seed in range(options.seeds):
        for contender in CONTENDERS:
            yield Run(SHIFTING, options.phase, contender, seed)
        for phase in STEADY:
            for contender in CONTENDERS:
                if contender.flips:
                    yield Run((phase,), STEADY_PHASES * options.phase, contender, seed)


def _carry_out(runs: Sequence[Run], jobs: int) -> dict[Run, Result]:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{len(runs)} runs", total=len(runs))
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            futures = {pool.submit(run_result, run): run for run in runs}
            for _ in as_completed(futures):
                progress.advance(task)
    return {run: future.result() for future, run in futures.items()}


if __name__ == "__main__":
    sys.exit(main())
