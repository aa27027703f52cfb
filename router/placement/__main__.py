"""``python -m router.placement --topology FILE --id ID``: the placement daemon's process."""

import sys

from mesh.process.compiled_core import build_here, use_compiled
from mesh.process.garbage import importing
from mesh.process.left_out import COLOURS, without


def main() -> int:
    """Be the daemon that the arguments name; answer the exit code."""
    use_compiled(build_here())
    with importing(), without(COLOURS):
        from mesh.process.process import run_process
        from mesh.topology.schema import Topology
        from router.placement.process import serve

    def daemons(topology: Topology) -> list[str]:
        return [] if topology.placement is None else [topology.placement.id]

    return run_process("router.placement", daemons, serve)


if __name__ == "__main__":
    sys.exit(main())
