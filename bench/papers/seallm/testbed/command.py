"""SeaLLM's testbed in simulation: 32 GPUs in 4 nodes, 8 services, figures 6 to 13 of the paper.

    python -m bench.papers.seallm.testbed --sharegpt FILE --arxiv FILE --code FILE --arrivals FILE [--figure 6 7 ...]
        [--out DIR] [--rates 2 5 ...] [--rate 30] [--requests 800] [--seeds 1] [--jobs N]

Services are clusters of requests by length, each with one of four models; where no files are given, lengths and
arrivals are drawn to look like them. Our placement search and doubling budgets against own devices for each service (as
vLLM), first come first served (as AlpaServe) and turns with quotas of memory (as MuxServe), and against ourselves with
a part left out. Runs are kept in --out: what was broken off goes on where it was, and tables are made from it again.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.harness.arguments import add_jobs, add_out, add_seeds, script_parser
from bench.harness.jobs import run_jobs
from bench.harness.tables import make_console
from bench.papers.runs import over_seeds
from bench.papers.seallm.testbed.cells import Cell, Lab
from bench.papers.seallm.testbed.figures import FIGURES, Range, cells_of, systems_of
from bench.papers.seallm.testbed.lengths import Files
from bench.papers.seallm.testbed.plans import Effort
from bench.papers.seallm.testbed.run import Result
from bench.papers.seallm.testbed.scene import Inputs, make_world
from bench.papers.seallm.testbed.systems import OURS
from bench.papers.seallm.testbed.tables import figure_table, ratios_table, scales_table
from bench.placement.log import verdicts
from mesh.errors import UserError

RATES = (2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0)
WITH_RATIOS = (6, 8, 9)


def main() -> int:
    options = _parse()
    lab = Lab(
        Inputs(Files(options.sharegpt, options.arxiv, options.code), options.arrivals),
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
    for figure in options.figure:
        _show(figure, span, {cell: answers[cell] for cell in cells_of([figure], span)})
    if len(options.figure) > 1:
        make_console(140).print(ratios_table("all figures", _means(answers), OURS.name))
    return 0


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.papers.seallm.testbed", __doc__)
    parser.add_argument("--figure", nargs="+", type=int, choices=FIGURES, default=FIGURES, help="6 to 13 (all)")
    parser.add_argument(
        "--sharegpt", type=_absolute, metavar="FILE", help="lengths of chats (input_tokens, output_tokens)"
    )
    parser.add_argument("--arxiv", type=_absolute, metavar="FILE", help="lengths of summaries")
    parser.add_argument(
        "--code", type=_absolute, metavar="FILE", help="lengths of code (prompt_pieces, solution_pieces)"
    )
    parser.add_argument("--arrivals", type=_absolute, metavar="FILE", help="Azure Functions or ServeGen")
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, metavar="R", help="of figures 6, 7 and 8")
    parser.add_argument("--rate", type=float, default=30.0, metavar="R", help="of figures 9 to 13 (default: 30)")
    parser.add_argument("--requests", type=int, default=800, metavar="N", help="of a run (default: 800)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of a run at least (default: 60)")
    parser.add_argument("--replaced-seconds", type=float, default=600.0, metavar="S", help="of figure 9 (default: 600)")
    add_seeds(parser, 1)
    parser.add_argument("--strict", action="store_true", help="FCFS to the letter, too, in figures 6 to 8: slow")
    parser.add_argument("--history", type=int, default=300, metavar="N", help="requests that plans are made for")
    parser.add_argument("--history-seconds", type=float, default=15.0, metavar="S", help="of requests at least")
    parser.add_argument("--batches", type=int, default=8, metavar="N", help="of 8 plans each, in local search")
    add_jobs(parser)
    add_out(parser, "testbed")
    return parser.parse_args()


def _absolute(path: str) -> Path:
    return Path(path).absolute()


def _show(figure: int, span: Range, answers: dict[Cell, Result]) -> None:
    console, means = make_console(140), _means(answers)
    console.print(scales_table(means) if figure == 10 else figure_table(figure, means))
    if figure in WITH_RATIOS:
        console.print(ratios_table(f"figure {figure}", means, systems_of(figure, span)[0].name))
    for cell, result in answers.items():
        if result.decisions:
            console.print(f"decisions of {cell.name}: {verdicts(result.decisions)}")


def _means(answers: dict[Cell, Result]) -> dict[Cell, Result]:
    return over_seeds(answers, lambda cell: replace(cell, scene=replace(cell.scene, seed=0)))


def _run(lab: Lab, cells: Sequence[Cell], num_jobs: int) -> dict[Cell, Result]:
    """Make plans first, as several systems share one."""
    missing = [cell for cell in cells if not lab.has(cell)]
    run_jobs(lab.plan, list({cell.plan_name: cell for cell in missing}.values()), num_jobs, "plans")
    run_jobs(lab.run, missing, num_jobs)
    return {cell: lab.run(cell) for cell in cells}
