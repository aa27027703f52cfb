"""``python -m engines --topology FILE --id ID``: one engine of a mesh."""

import sys

from mesh.process.garbage import importing


def main() -> int:
    """Be the engine that the arguments name; answer the exit code."""
    with importing():
        from engines.process import serve
        from mesh.process.process import run_process

    return run_process("engines", lambda topology: [engine.id for engine in topology.engines], serve)


if __name__ == "__main__":
    sys.exit(main())
