"""Role flips under a load that shifts: engines that change roles beside engines that keep them.

    python -m bench.placement.role_flips [--seeds 2] [--phase 120] [--only WORDS] [--jobs N]

In simulation: eight engines with Llama-2-70B on four A100s each, half of them prefill engines to begin with. First come
long prompts with short answers, then short prompts with long answers, then the former again. Tropical and elastic run
with and without `flips`, and Tropical with other splits that stay as they are: what flips bring is one thing, what a
better split would bring another. Then the same engines under loads that stay the same, where flips should end.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping

from rich.table import Table

from bench.harness.arguments import add_jobs, add_seeds, script_parser
from bench.harness.jobs import run_jobs
from bench.harness.tables import make_console, make_table
from bench.placement.role_flips_run import (
    CONTENDERS,
    SETTLED_S,
    SHIFTING,
    STEADY,
    STEADY_PHASES,
    Contender,
    Result,
    Run,
    run_result,
)


def main() -> int:
    options = _parse()
    words = options.only.split()
    runs = [run for run in _runs(options) if all(word in run.name for word in words)]
    results = dict(zip(runs, run_jobs(run_result, runs, options.jobs), strict=True))
    shifting = {run: result for run, result in results.items() if len(run.phases) > 1}
    steady = {run: result for run, result in results.items() if len(run.phases) == 1}
    console = make_console()
    if shifting:
        console.print(shifting_table(shifting))
    if steady:
        console.print(steady_table(steady))
    return 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.placement.role_flips", __doc__)
    add_seeds(parser, 2)
    parser.add_argument("--phase", type=float, default=120.0, metavar="S", help="seconds of a phase (default: 120)")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="runs whose load and policy have all of these words"
    )
    add_jobs(parser)
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


# --- tables ---------------------------------------------------------------------------------------------------------

Results = Mapping[Run, Result]


def shifting_table(results: Results) -> Table:
    """Means over the seeds; of all requests also the least and the most."""
    some = next(iter(results))
    table = make_table(
        "both SLOs met, % of requests, by phase",
        ("policy, prefill + multiplexing",),
        (*(phase.name for phase in some.phases), "all (least, most)", "goodput", "flips", "late/h"),
    )
    for contender, runs in by_contender(results).items():
        by_phase = [
            statistics.fmean(result.by_phase[number] for result in runs.values()) for number in range(len(some.phases))
        ]
        cells = [f"{100 * share:.1f}" for share in by_phase]
        table.add_row(contender.name, *cells, _spread(runs), _goodput(runs), *_flips(runs))
    return table


def steady_table(results: Results) -> Table:
    """Loads that stay the same: flips at first, and those an hour that come later."""
    table = make_table(
        f"loads that stay the same; late flips come {SETTLED_S:g} s after the start",
        ("load", "policy, prefill + multiplexing"),
        ("both SLOs, % (least, most)", "goodput", "flips", "late/h"),
    )
    for load in dict.fromkeys(run.load for run in results):
        of_load = {run: result for run, result in results.items() if run.load == load}
        for contender, runs in by_contender(of_load).items():
            table.add_row(load, contender.name, _spread(runs), _goodput(runs), *_flips(runs))
    return table


def by_contender(results: Results) -> dict[Contender, dict[Run, Result]]:
    """In order of first appearance."""
    contenders = dict.fromkeys(run.contender for run in results)
    return {one: {run: result for run, result in results.items() if run.contender == one} for one in contenders}


def _spread(runs: Results) -> str:
    shares = [100 * result.attainment for result in runs.values()]
    return f"{statistics.fmean(shares):.1f} ({min(shares):.1f}, {max(shares):.1f})"


def _goodput(runs: Results) -> str:
    return f"{statistics.fmean(result.goodput for result in runs.values()):.2f}"


def _flips(runs: Results) -> tuple[str, str]:
    """Flips of a run on average, and late flips an hour."""
    if not next(iter(runs)).contender.flips:
        return "", ""
    late = statistics.fmean(run.late_flips_per_hour(result.flips) for run, result in runs.items())
    return f"{statistics.fmean(len(result.flips) for result in runs.values()):.1f}", f"{late:.1f}"


if __name__ == "__main__":
    sys.exit(main())
