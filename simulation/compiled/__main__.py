"""Runs a module with the compiled simulator, as ``python -m`` runs it with the one as it was written.

    python -m simulation.compiled mesh.cli simulate mesh.toml --lengths sharegpt.csv --rate 4
    python -m simulation.compiled bench.fidelity.simulation_speed --duration 3600
    python -m simulation.compiled pytest tests/simulation/test_golden.py

It is compiled by mypyc when these sources are first run so, into the cache (``$MESHSERVE_CACHE``).
"""

import os
import sys
from pathlib import Path

from engines.models.cache import Cache
from mesh.errors import EXIT_CONFIGURATION, UserError
from simulation.compiled.build import compiled_tree
from simulation.compiled.modules import COMPILED

ROOT = Path(__file__).parents[2]


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(f"which module? {(__doc__ or '').splitlines()[2].strip()}")
    try:
        tree = compiled_tree(ROOT, COMPILED, Cache.of_user().root / "compiled", _say)
    except UserError as error:
        _say(str(error))
        sys.exit(EXIT_CONFIGURATION)
    paths = [str(tree), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    os.execve(sys.executable, [sys.executable, "-m", *sys.argv[1:]], environment)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
