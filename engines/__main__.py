"""``python -m engines --topology FILE --id ID``: one engine of a mesh."""

import sys

from engines.process import serve
from mesh.process.process import run_process

if __name__ == "__main__":
    sys.exit(run_process("engines", lambda topology: [engine.id for engine in topology.engines], serve))
