"""The table of a run names what took CPU time, by folder, by file and by test."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.tools.cpu_cost import CpuCost

def pytest_configure(config):
    config.pluginmanager.register(CpuCost())
"""
BUSY = """
import subprocess, sys, time
BUSY = "import time\\nwhile time.process_time() < 0.4: pass"
def test_computes():
    end = time.process_time() + 0.3
    while time.process_time() < end: pass
def test_has_a_process_compute(): subprocess.run([sys.executable, "-c", BUSY], check=True)
"""


def test_what_tests_and_their_processes_compute_is_told(tmp_path: Path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "tests/here").mkdir(parents=True)
    (tmp_path / "tests/here/test_busy.py").write_text(BUSY)
    (tmp_path / "tests/here/test_idle.py").write_text("def test_waits(): pass")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    env = {"PYTHONPATH": str(ROOT), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True)
    rows = [line.split() for line in done.stdout.splitlines() if " s  tests/" in line]
    costs_s = {row[2]: float(row[0]) for row in rows}
    busy, idle = "tests/here/test_busy.py", "tests/here/test_idle.py"
    tests = [f"{busy}::test_has_a_process_compute", f"{busy}::test_computes", f"{idle}::test_waits"]
    assert list(costs_s) == ["tests/here", busy, idle, *tests]
    assert costs_s["tests/here"] >= costs_s["tests/here/test_busy.py"] >= 0.7
