"""Runs tests in processes of their own, and records which of them reach which line."""

import json
import os
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import coverage
import pytest

from tests.tools.mutants import Mutant

FLOORS = ("mesh", "kvtransfer", "engines", "router", "simulation")
QUIET = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=no"]
QUIET += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is preloaded
RECORD_S = 3600.0  # of the first run at most


@dataclass
class Reach:
    """Which tests come to a line, and how long each of them takes."""

    tests: dict[str, dict[str, list[str]]] = field(default_factory=dict)  # by path and line
    seconds: dict[str, float] = field(default_factory=dict)

    def of(self, mutant: Mutant, budget_s: float) -> list[str]:
        """Return the tests that reach a mutant's line, the quickest first, as many as the budget has time for."""
        chosen, spent_s = [], 0.0
        for test in sorted(self.tests.get(mutant.path, {}).get(str(mutant.line), ()), key=self._seconds):
            spent_s += self._seconds(test)
            if chosen and spent_s > budget_s:
                break
            chosen.append(test)
        return chosen

    def _seconds(self, test: str) -> float:
        return self.seconds.get(test, float("inf"))


class Recording:
    """A plugin of pytest that writes down what each test reaches and how long it takes."""

    def __init__(self, sources: Sequence[str], variants: int) -> None:
        self.seconds: Counter[str] = Counter()
        self._variants = variants
        self._coverage = coverage.Coverage(data_file=None, source=list(sources), config_file=False)

    def pytest_sessionstart(self) -> None:
        self._coverage.start()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        variants: defaultdict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            variants[item.nodeid.partition("[")[0]].append(item)
        items[:] = [item for kept in variants.values() for item in kept[: self._variants]]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration if report.passed else float("inf")

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()

    def reach(self, root: Path) -> Reach:
        """Return what was seen, of the tests that passed."""
        passed = {test: seconds for test, seconds in self.seconds.items() if seconds < float("inf")}
        data = self._coverage.get_data()
        files = {str(Path(file).relative_to(root)): data.contexts_by_lineno(file) for file in data.measured_files()}
        tests = {
            file: {str(line): sorted(passed.keys() & set(names)) for line, names in lines.items()}
            for file, lines in files.items()
        }
        return Reach(tests, passed)


def forked(root: Path, work: Callable[[], int], limit_s: float) -> int | None:
    """Return what the work comes to in a process of its own, whose folder is the tree; None where it takes too long."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(_inside(root, work))
    ends_at = time.monotonic() + limit_s
    try:
        while time.monotonic() < ends_at:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        return None
    finally:
        _kill(child)


def _inside(root: Path, work: Callable[[], int]) -> int:
    os.chdir(root)
    sys.path.insert(0, str(root))
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # they are this tree's
    try:
        return work()
    except BaseException:
        traceback.print_exc()
        return pytest.ExitCode.INTERNAL_ERROR


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
        os.waitpid(group, 0)
    except (ProcessLookupError, ChildProcessError):
        return


def record(root: Path, tests: Sequence[str], variants: int, out: Path) -> Reach:
    """Run all tests once and return what each of them reaches; a record of an earlier run is read instead."""

    def work() -> int:
        plugin = Recording(FLOORS, variants)
        code = pytest.main([*QUIET, *tests], plugins=[plugin])
        out.write_text(json.dumps(asdict(plugin.reach(root))))
        return int(code)

    if not out.exists():
        forked(root, work, limit_s=RECORD_S)
    return Reach(**json.loads(out.read_text()))
