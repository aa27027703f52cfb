"""``python -m router --topology FILE --id ID``: one gateway process."""

import sys

from mesh.process.compiled_core import build_here, use_compiled
from mesh.process.garbage import importing
from mesh.process.left_out import COLOURS, without


def main() -> int:
    """Be the gateway that the arguments name; answer the exit code."""
    use_compiled(build_here())
    with importing(), without(COLOURS):
        from mesh.addresses import gateway_names
        from mesh.process.process import run_process
        from router.process import serve

    return run_process("router", gateway_names, serve)


if __name__ == "__main__":
    sys.exit(main())
