"""``python -m engines.models prepare REF...``: what ``mesh up`` runs before it starts engines."""

import argparse
import sys

from engines.models.cli import add_prepare
from mesh.errors import EXIT_INTERRUPTED


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m engines.models")
    add_prepare(parser.add_subparsers(title="actions", required=True))
    arguments = parser.parse_args()
    try:
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


sys.exit(main())
