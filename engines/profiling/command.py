"""``mesh profile``: what the engines of a topology cost, measured on this machine and kept for them."""

import argparse
from pathlib import Path

from mesh.cli.running_mesh import DEFAULT_TOPOLOGY, running_topology
from mesh.errors import UserError
from mesh.show.output import Showing, add_show

DEFAULT_REPEATS = 5


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    """Add ``profile`` to the commands of ``mesh``, with what it has for engines of ours."""
    help_text = "measure what the engines of a topology cost, and keep it for them"
    description = (
        "Measure prefills and decode steps of each kind of engine, fit cost models, show their errors, keep them."
    )
    parser = subparsers.add_parser("profile", help=help_text, description=description)
    parser.add_argument(
        "topology",
        nargs="?",
        type=Path,
        metavar="TOPOLOGY",
        help=f"the deployment (default: what `mesh serve` runs, or {DEFAULT_TOPOLOGY})",
    )
    parser.add_argument(
        "--repeats",
        type=_at_least_one,
        default=DEFAULT_REPEATS,
        metavar="N",
        help=f"rounds of measuring (default: {DEFAULT_REPEATS})",
    )
    parser.add_argument(
        "--live", action="store_true", help="measure the mesh that runs: what its engines learnt, after a load if idle"
    )
    add_show(parser, "what was measured, what was fitted, and the errors")
    parser.set_defaults(run=run)
    return parser


def _at_least_one(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def run(arguments: argparse.Namespace) -> int:
    # Imported here: torch takes seconds to load, and other commands don't need it.
    from mesh.topology.parse import load

    if arguments.live and (arguments.plot or arguments.html):
        raise UserError("--plot and --html: show points that are measured; leave --live out")
    showing = Showing.of(arguments)
    topology = load(arguments.topology or running_topology())
    if arguments.live:
        from engines.profiling.live import profile_live

        profile_live(topology)
    else:
        from engines.profiling.run import profile_engines

        profile_engines(topology, arguments.repeats, showing)
    return 0
