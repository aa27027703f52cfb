"""Loses and cuts off nodes of a mesh while answers are streamed, and prints what came of them.

Needs root and Ray: each node is a set of namespaces in this machine.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench.harness.arguments import add_json, errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.models.tiny_llama import write_tiny_model
from bench.nodes import trials
from bench.nodes.cluster import mesh_on_nodes
from bench.nodes.network import why_not
from bench.nodes.trials import Outcome
from mesh.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = script_parser("bench.nodes", __doc__)
    parser.add_argument("--faults", nargs="+", choices=trials.FAULTS, default=[*trials.FAULTS], help="(default: all)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each fault (default: 3)")
    add_json(parser)
    options = parser.parse_args(arguments)
    if reason := why_not():
        raise UserError(reason)
    found = _run(options)
    _print(found)
    write_json(options.json, found)
    return 1 if any(outcome.wrong for outcomes in found.values() for outcome in outcomes) else 0


def _run(options: argparse.Namespace) -> dict[str, list[Outcome]]:
    with tempfile.TemporaryDirectory(prefix="nodes") as name:
        folder = Path(name)
        (folder / "nodes").mkdir()
        model = write_tiny_model(folder / "model", max_context=trials.MAX_CONTEXT)
        with mesh_on_nodes(folder / "nodes", model) as mesh:
            return {fault: [trials.try_fault(mesh, fault) for _ in range(options.runs)] for fault in options.faults}


def _print(found: dict[str, list[Outcome]]) -> None:
    numbers = ("wrong answers", "worst gap: median, s", "most, s", "without a fault, most, s", "elsewhere: median, s")
    title = f"{trials.NUM_STREAMS} streams of {trials.NUM_TOKENS} tokens in each run"
    print_table(title, ("fault",), numbers, [(fault, *_cells(outcomes)) for fault, outcomes in found.items()])


def _cells(outcomes: list[Outcome]) -> Iterator[str]:
    yield f"{sum(len(outcome.wrong) for outcome in outcomes)} of {len(outcomes) * trials.NUM_STREAMS}"
    gaps_s = [outcome.worst_gap_s for outcome in outcomes]
    usual_s = max(outcome.undisturbed_gap_s for outcome in outcomes)
    yield from (f"{gap_s:.2f}" for gap_s in (median(gaps_s), max(gaps_s), usual_s))
    backs_s = [outcome.back_s for outcome in outcomes if outcome.back_s is not None]
    yield f"{median(backs_s):.1f}" if backs_s else ""


if __name__ == "__main__":
    with errors_in_a_line():
        sys.exit(main())
