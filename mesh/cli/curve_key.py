"""``mesh curve-key``: make the key that the processes of a mesh on several hosts know each other by."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("curve-key", help="make the key file of a mesh on several hosts")
    parser.add_argument("file", type=Path, metavar="FILE", help="where to write it; copy it to every host of the mesh")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.sockets.curve import make_key_file

    make_key_file(options.file)
    sys.stdout.write(
        f'{options.file}: written; keep it secret, copy it to every host, and set curve_key = "{options.file.name}" '
        "under [mesh]\n"
    )
    return 0
