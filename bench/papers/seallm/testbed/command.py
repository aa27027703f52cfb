"""SeaLLM's testbed in simulation: 32 GPUs in 4 nodes, 8 services, figures 6 to 13 of the paper.

    python -m bench.papers.seallm.testbed --sharegpt FILE --arxiv FILE --code FILE --arrivals FILE [--figure 6 7 ...]
        [--out DIR] [--rates 2 5 ...] [--rate 30] [--requests 800] [--seeds 1] [--jobs N]

Services are clusters of requests by length, each with one of four models; where no files are given, lengths and
arrivals are drawn to look like them. Our placement search and doubling budgets against own devices for each service (as
vLLM), first come first served (as AlpaServe) and turns with quotas of memory (as MuxServe), and against ourselves with
a part left out. Runs are kept in --out: what was broken off goes on where it was, and figures are drawn from it again.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.harness.arguments import add_jobs, add_out, add_seeds, script_parser
from bench.harness.jobs import run_jobs
from bench.harness.tables import make_console
from bench.papers.seallm.testbed.cells import Cell, Lab, placings
from bench.papers.seallm.testbed.figures import FIGURES, Range, cells_of, systems_of
from bench.papers.seallm.testbed.lengths import Files
from bench.papers.seallm.testbed.plans import Effort
from bench.papers.seallm.testbed.run import Result
from bench.papers.seallm.testbed.scene import Inputs, make_world
from bench.papers.seallm.testbed.tables import (
    Answers,
    curves,
    decisions_table,
    figure_table,
    greatest_table,
    ratios_table,
    scales_table,
)
from mesh.errors import UserError
from simulation.command.outputs import has_matplotlib

RATES = (2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0)
WITH_RATIOS = (6, 8, 9)


def main() -> int:
    options = _parse()
    lab = Lab(
        Inputs(Files(*map(_absolute, (options.sharegpt, options.arxiv, options.code))), _absolute(options.arrivals)),
        Effort(options.history, options.history_seconds, options.batches),
        options.out.absolute(),
    )
    span = Range(
        options.rates,
        options.rate,
        options.requests,
        options.seconds,
        options.seeds,
        options.strict,
        options.replaced_seconds,
    )
    try:
        make_world(lab.inputs)  # before anything is written
        lab.check()
        answers = _run(lab, cells_of(options.figure, span), options.jobs)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    console = make_console(140)
    for figure in options.figure:
        _show(console, figure, span, answers, lab.folder)
    if len(options.figure) > 1:
        console.print(greatest_table(answers))
    return 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.seallm.testbed", __doc__)
    parser.add_argument(
        "--figure", nargs="+", type=int, choices=FIGURES, default=FIGURES, metavar="N", help="6 to 13 (all)"
    )
    parser.add_argument("--sharegpt", type=Path, metavar="FILE", help="lengths of chats (input_tokens, output_tokens)")
    parser.add_argument("--arxiv", type=Path, metavar="FILE", help="lengths of summaries")
    parser.add_argument("--code", type=Path, metavar="FILE", help="lengths of code (prompt_pieces, solution_pieces)")
    parser.add_argument("--arrivals", type=Path, metavar="FILE", help="Azure Functions or ServeGen")
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, metavar="R", help="of figures 6, 7 and 8")
    parser.add_argument("--rate", type=float, default=30.0, metavar="R", help="of figures 9 to 13 (default: 30)")
    parser.add_argument("--requests", type=int, default=800, metavar="N", help="of a run (default: 800)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of a run at least (default: 60)")
    parser.add_argument(
        "--replaced-seconds", type=float, default=600.0, metavar="S", help="of a run of figure 9 (default: 600)"
    )
    add_seeds(parser, 1)
    parser.add_argument("--strict", action="store_true", help="FCFS to the letter, too, in figures 6 to 8: slow")
    parser.add_argument("--history", type=int, default=300, metavar="N", help="requests that plans are made for")
    parser.add_argument("--history-seconds", type=float, default=15.0, metavar="S", help="of requests at least")
    parser.add_argument("--batches", type=int, default=8, metavar="N", help="of 8 plans each, in local search")
    add_jobs(parser)
    add_out(parser, "testbed")
    return parser.parse_args()


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


def _show(console: Console, figure: int, span: Range, answers: Answers, folder: Path) -> None:
    systems = [system.name for system in systems_of(figure, span)]
    by_system = curves(answers, figure, systems, cells_of([figure], span))
    if figure == 10:
        console.print(scales_table(by_system, span.rate))
    else:
        console.print(figure_table(figure, by_system))
    if figure in WITH_RATIOS:
        console.print(ratios_table(by_system))
    if figure == 9:
        console.print(decisions_table(answers, cells_of([figure], span)))
    if has_matplotlib():
        from bench.papers.seallm.testbed.plot import plot_figure, plot_scales

        is_scales = figure == 10
        path = plot_scales(folder, span.rate, by_system) if is_scales else plot_figure(folder, figure, by_system)
        console.print(f"drew {path}")


# --- runs -------------------------------------------------------------------------------------------------------------


def _run(lab: Lab, cells: Sequence[Cell], num_jobs: int) -> dict[Cell, Result]:
    """Plans first, as several systems use one."""
    missing = [cell for cell in cells if not lab.has(cell)]
    run_jobs(lab.place, list(placings(missing)), num_jobs, "plans")
    run_jobs(lab.run, missing, num_jobs)
    return {cell: lab.run(cell) for cell in cells}
