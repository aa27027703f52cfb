"""Which files and tests take the most CPU time, the processes that they start and wait for included.

So are processes that tests leave, such as those of `mesh up --detach`, in runs whose first process adopts them. The
time of a fixture that tests share is that of the first test that asks for it.
"""

import resource
from collections import Counter
from collections.abc import Generator
from pathlib import PurePath

import pytest

NUM_ROWS = 15  # of files in the table, and of tests


class CpuCost:
    """The plugin: who runs a test measures it, and the first process adds up what reports say."""

    def __init__(self) -> None:
        self._before_s = 0.0
        self._files: Counter[str] = Counter()  # of CPU seconds
        self._tests: Counter[str] = Counter()  # with all their parameters, without what they left

    def pytest_runtest_logstart(self) -> None:
        self._before_s = _used_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now_s = _used_s()
        vars(report)["cpu_s"] = now_s - self._before_s
        self._before_s = now_s
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost_s = vars(report).get("cpu_s", 0.0)
        self._files[report.nodeid.partition("::")[0]] += cost_s
        self._tests[report.nodeid.partition("[")[0]] += cost_s

    def add(self, file: str, cost_s: float) -> None:
        """Count a process that a test of this file has left."""
        self._files[file] += cost_s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        folders: Counter[str] = Counter()
        for file, cost_s in self._files.items():
            folders[str(PurePath(*PurePath(file).parts[:2]))] += cost_s
        terminalreporter.write_sep("=", f"{self._files.total():.0f} s of CPU time")
        dearest = [*self._files.most_common(NUM_ROWS), *self._tests.most_common(NUM_ROWS)]
        for name, cost_s in [*folders.most_common(), *dearest]:
            terminalreporter.write_line(f"{cost_s:7.1f} s  {name}")


def _used_s() -> float:
    """CPU time of this process and of all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
