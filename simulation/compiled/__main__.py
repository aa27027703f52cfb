"""Compiles what is worth it, and runs a module with that, as ``python -m`` runs it with what was written.

    python -m simulation.compiled
    python -m simulation.compiled mesh.cli simulate mesh.toml --lengths sharegpt.csv --rate 4
    python -m simulation.compiled bench.fidelity.simulation_speed --duration 3600
    python -m simulation.compiled pytest tests/simulation/test_golden.py

mypyc compiles when that is first asked of these sources, into the cache (``$MESHSERVE_CACHE``). Without a module,
nothing is run: the processes of a mesh use what is there (`mesh.process.compiled_core`).
"""

import os
import sys

from mesh.errors import EXIT_CONFIGURATION, UserError
from mesh.process.compiled_core import ROOT, builds_in, user_cache
from simulation.compiled.build import compiled_tree
from simulation.compiled.modules import COMPILED


def main() -> None:
    try:
        tree = compiled_tree(ROOT, COMPILED, builds_in(user_cache()), _say)
    except UserError as error:
        _say(str(error))
        sys.exit(EXIT_CONFIGURATION)
    if len(sys.argv) < 2:
        _say(f"compiled, for these sources: {tree}")
        return
    paths = [str(tree), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    os.execve(sys.executable, [sys.executable, "-m", *sys.argv[1:]], environment)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
