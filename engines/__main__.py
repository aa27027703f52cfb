"""``python -m engines --topology FILE --id ID``: one engine of a mesh."""

import os
import sys

from mesh.errors import EXIT_CONFIGURATION
from mesh.process.compiled_core import build_here, use_compiled
from mesh.process.garbage import importing
from mesh.process.left_out import COLOURS, without


def main() -> int:
    """Be the engine that the arguments name; answer the exit code."""
    use_compiled(build_here())
    with importing(), without(COLOURS):
        from engines.loading import bring
        from engines.process import serve
        from mesh.process.process import run_process

    return run_process("engines", lambda topology: [engine.id for engine in topology.engines], serve, bring=bring)


def end(code: int) -> None:
    """End the process. After a line that says what is wrong, at once: libraries print theirs when Python ends."""
    if code == EXIT_CONFIGURATION:
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    end(main())
