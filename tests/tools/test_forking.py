"""Forked workers run each test once and tell of it, also when tests fail or end their process."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = """
import pytest
from tests.tools.cpu_cost import CpuCost
from tests.tools.forking import Forks

def pytest_configure(config):
    cost = CpuCost()
    config.pluginmanager.register(cost)
    config.pluginmanager.register(Forks(3, lambda item: "waiting" in item.nodeid, cost.add))

@pytest.fixture(scope="session")
def shared():
    yield
    raise RuntimeError("the shared one does not end")
"""
FILES = {
    "test_waiting.py": "import os\ndef test_ends_its_process(): os._exit(7)\ndef test_after_it(tmp_path): pass",
    "test_computing.py": """
import pytest
@pytest.mark.parametrize("number", range(20))
def test_is_right(number, tmp_path): (tmp_path / "file").touch(exist_ok=False)
def test_is_wrong(): print("what it said"); assert 1 == 2
""",
    "test_shared.py": "def test_takes(shared): pass",
}
LEAVING = """
import os, pathlib, time
def test_leaves():
    left = os.fork()
    if left == 0:
        time.sleep(100)
        os._exit(0)
    pathlib.Path("left").write_text(str(left))
"""
DETACHING = """
import os, psutil, subprocess, sys, time
BUSY = "import time\\nwhile time.process_time() < 0.5: pass\\ntime.sleep(1.2)"
DETACH = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {BUSY!r}], stdout=2).pid)"
def test_detaches():
    pid = int(subprocess.check_output([sys.executable, "-c", DETACH]))
    while psutil.pid_exists(pid): time.sleep(0.05)
"""
INTERRUPTED = """
import os, pathlib, pytest, signal, time
@pytest.fixture(scope="session")
def lasting():
    yield
    time.sleep(0.2)
    pathlib.Path("ended").touch()
def test_interrupts(lasting):
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)
"""


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", f"--rootdir={folder}", *arguments]
    env = {"PYTHONPATH": str(ROOT), "PATH": "", "TMPDIR": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with (folder / "output").open("w+") as output:  # what a test leaves would keep a pipe open
        done = subprocess.run(
            command, cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
        )
        output.seek(0)
        done.stdout = output.read()
    return done


def outcomes(done: "subprocess.CompletedProcess[str]") -> dict[str, Counter[str]]:
    """How often the summary names a test with each outcome."""
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED", "ERROR"))]
    return {
        word: Counter(row[1].partition("::")[2].partition("[")[0] for row in rows if row[0] == word)
        for word in ("PASSED", "FAILED", "ERROR")
    }


def test_each_test_is_run_once_and_failures_are_told(tmp_path: Path):
    done = run(tmp_path)
    assert done.returncode == 1, done.stdout
    assert outcomes(done) == {
        "PASSED": {"test_is_right": 20, "test_after_it": 1, "test_takes": 1},
        "FAILED": {"test_is_wrong": 1, "test_ends_its_process": 1},
        "ERROR": {"test_takes": 1},
    }
    assert "its process ended with 7" in done.stdout
    assert "what it said" in done.stdout
    assert "the shared one does not end" in done.stdout


def test_enough_failures_stop_all_workers(tmp_path: Path):
    done = run(tmp_path, "--maxfail=1")
    assert done.returncode == 1, done.stdout
    assert "stopping after 1 failures" in done.stdout


def test_a_test_that_takes_too_long_is_told_with_where_it_is(tmp_path: Path):
    (tmp_path / "test_slow.py").write_text("import time\ndef test_sleeps(): time.sleep(60)")
    done = run(tmp_path, "-p", "pytest_timeout", "--timeout=0.5", "test_slow.py")
    assert outcomes(done)["FAILED"] == {"test_sleeps": 1}
    assert "Failed: Timeout" in done.stdout
    assert "test_slow.py:2" in done.stdout


def test_a_process_that_a_test_leaves_does_not_hold_up_the_end(tmp_path: Path):
    """It has all that the worker had open, the connection to the first process, too."""
    (tmp_path / "test_leaving.py").write_text(LEAVING)
    done = run(tmp_path, "test_leaving.py", "test_waiting.py")
    os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
    assert outcomes(done)["PASSED"] == {"test_leaves": 1, "test_after_it": 1}


def test_what_a_test_has_detached_is_waited_for_and_counted_as_of_its_file(tmp_path: Path):
    (tmp_path / "test_detaching.py").write_text(DETACHING)
    done = run(tmp_path, "test_detaching.py")
    assert outcomes(done)["PASSED"] == {"test_detaches": 1}, done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.endswith(" s  test_detaching.py")]
    assert float(rows[-1][0]) >= 0.5


def test_an_interrupted_run_ends_what_tests_share(tmp_path: Path):
    (tmp_path / "test_interrupted.py").write_text(INTERRUPTED)
    done = run(tmp_path, "test_interrupted.py")
    assert done.returncode == 2, done.stdout
    assert (tmp_path / "ended").exists()
