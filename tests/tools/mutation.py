"""Writes small defects into a copy of the tree, one at a time, and counts how many of them the tests notice.

A first run of all tests tells which of them reach which line. A defect is then tried on the tests that reach its line,
the quickest first and together no longer than a few seconds. ``make mutation`` draws a sample; CONTRIBUTING.md tells
what to do with those that survive.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.tools.mutants import Mutant, mutants
from tests.tools.reach import QUIET, Reach, forked, record

SOURCES = ("router/requests", "router/policies", "router/view", "engines/scheduling", "engines/transfers")
SOURCES += ("engines/memory", "kvtransfer")
CORES = ("test_core", "test_core_failures", "test_core_questions", "test_core_transfers")
WHOLE_MESHES = ("test_gateway", "test_lost_messages", "test_migrations", "test_slice_ends", "test_slicing")
TESTS = tuple(f"tests/{source}" for source in (*SOURCES, "router/history", "engines/admission"))
TESTS += tuple(f"tests/engines/{name}.py" for name in CORES)
TESTS += tuple(f"tests/router/{name}.py" for name in WHOLE_MESHES)
PRELOADED = ("msgspec", "numpy", "structlog", "torch", "zmq")  # once, for all runs
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__", ".*_cache")
TEST_S = 30  # of one test: whoever takes longer has noticed
SLOWER = 5  # a run may take so many times as long as its tests took at first


@contextmanager
def applied(root: Path, mutant: Mutant) -> Iterator[None]:
    """Have the mutant in the tree for a while."""
    path = root / mutant.path
    source = path.read_text()
    for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        stale.unlink()  # which would hold for a source of the same size and second
    path.write_text(mutant.apply(source))
    try:
        yield
    finally:
        path.write_text(source)


def is_noticed(root: Path, mutant: Mutant, reach: Reach, budget_s: float) -> bool:
    """Return whether a test fails or hangs because of the mutant."""
    tests = reach.of(mutant, budget_s)
    if not tests:
        return False
    limit_s = TEST_S + SLOWER * sum(reach.seconds[test] for test in tests)
    with applied(root, mutant):
        code = forked(root, lambda: _silent_run(tests), limit_s)
    return code != pytest.ExitCode.OK


def _silent_run(tests: Sequence[str]) -> int:
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return int(pytest.main([*QUIET, "-x", f"--timeout={TEST_S}", *tests]))


def sampled(root: Path, sources: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Draw mutants, as many of each source."""
    draw = random.Random(seed)
    drawn: list[Mutant] = []
    for source in sources:
        paths = sorted((root / source).rglob("*.py")) if (root / source).is_dir() else [root / source]
        found = [mutant for path in paths for mutant in mutants(str(path.relative_to(root)), path.read_text())]
        drawn += draw.sample(found, min(len(found), -(-count // len(sources))))
    return drawn


def repeated(root: Path, report: Path) -> list[Mutant]:
    """Return the mutants of an earlier report whose line the tree still has, once."""
    drawn = [Mutant(**{name: row[name] for name in ("path", "line", "before", "after")}) for row in _rows(report)]
    lines = {path: (root / path).read_text().split("\n") for path in {m.path for m in drawn} if (root / path).exists()}
    return [
        replace(mutant, line=lines[mutant.path].index(mutant.before) + 1)
        for mutant in drawn
        if lines.get(mutant.path, []).count(mutant.before) == 1
    ]


def _rows(report: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(report.read_text())
    return rows


def told(mutant: Mutant, noticed: bool) -> str:
    word = "noticed " if noticed else "SURVIVED"
    return f"{word} {mutant.path}:{mutant.line}: {mutant.before.strip()}  ->  {mutant.after.strip()}"


def scores(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return one line for each folder: how many of its mutants were noticed."""
    tried = Counter(str(Path(row["path"]).parent) for row in rows)
    noticed = Counter(str(Path(row["path"]).parent) for row in rows if row["noticed"])
    lines = [f"{noticed[folder]:4} of {count:4}  {folder}" for folder, count in sorted(tried.items())]
    return [*lines, f"{noticed.total():4} of {tried.total():4}  all"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", default=SOURCES, help="folders and modules that get defects")
    parser.add_argument("--tree", type=Path, default=Path.cwd(), help="the tree; this one by default")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="what pytest runs")
    parser.add_argument("--count", type=int, default=150, help="number of defects, as many of each source")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--seconds", type=float, default=10.0, help="of tests for each defect")
    parser.add_argument("--variants", type=int, default=3, help="of each parametrized test that are run")
    parser.add_argument("--out", type=Path, default=Path("build/mutation.json"), help="report")
    parser.add_argument("--again", type=Path, help="report whose defects are tried again, instead of a draw")
    parser.add_argument("--reach", type=Path, help="file that keeps what tests reach, for more runs on the same tree")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    for module in PRELOADED:
        __import__(module)
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as folder:  # a short name: Unix sockets have 107 bytes
        root = Path(folder, "tree").resolve()
        shutil.copytree(options.tree, root, ignore=LEFT_OUT)
        os.environ |= {"PYTHONPATH": str(root), "TMPDIR": folder, "MESHSERVE_RUNTIME_DIR": folder}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        reach = record(root, options.tests, options.variants, (options.reach or Path(folder, "reach.json")).absolute())
        drawn = (
            repeated(root, options.again)
            if options.again
            else sampled(root, options.sources, options.count, options.seed)
        )
        rows = []
        for mutant in drawn:
            noticed = is_noticed(root, mutant, reach, options.seconds)
            print(told(mutant, noticed), flush=True)
            rows.append(asdict(mutant) | {"noticed": noticed})
            options.out.write_text(json.dumps(rows, indent=1))
    print("\n".join(scores(rows)))


if __name__ == "__main__":
    main()
