import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mesh.errors import EXIT_CONFIGURATION, EXIT_FAILURE, UserError
from mesh.process.incarnations import next_incarnation
from mesh.process.process import first_line, user_error_of

CHILD = Path(__file__).parents[1] / "child.py"
TOPOLOGY = '[services.s]\nmodel = "m"\n[engines.e]\n'


@pytest.fixture
def topology(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path / "run"))
    path = tmp_path / "t.toml"
    path.write_text(TOPOLOGY)
    return path


def run(topology, mode, process="e"):
    command = [sys.executable, str(CHILD), mode, "--topology", str(topology), "--id", process]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def logged(tmp_path):
    return [json.loads(line) for line in (tmp_path / "run/t/logs/e.log").read_text().splitlines()]


@pytest.mark.parametrize(
    ("mode", "line"),
    [("misconfigured", "e: no such model: nowhere; put one there"), ("grouped", "grouped: mend me")],
)
def test_what_a_user_can_mend_is_one_line(topology, mode, line):
    done = run(topology, mode)
    assert (done.returncode, done.stderr) == (EXIT_CONFIGURATION, f"{line}\n")


def test_a_bug_is_one_line_and_its_stack_trace_is_in_the_log(topology, tmp_path):
    done = run(topology, "broken")
    assert done.returncode == EXIT_FAILURE
    log_file = tmp_path / "run/t/logs/e.log"
    assert done.stderr == f"e: internal error: RuntimeError: the roof is on fire (stack trace in {log_file})\n"
    last = logged(tmp_path)[-1]
    assert (last["message"], last["level"], last["process"]) == ("failed", "error", "e")
    assert "Traceback" in last["exception"]


def test_a_wrong_topology_or_id_is_one_line(topology):
    assert run(topology, "ready", "f").stderr == f"{topology}: has no process 'f' of this kind; it has gateway, e\n"
    topology.write_text(TOPOLOGY + "threads = 0\n")
    done = run(topology, "ready")
    assert done.returncode == EXIT_CONFIGURATION
    assert done.stderr.startswith(f"{topology}:4: engines.e.threads: 0 does not fit")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(topology, tmp_path, number):
    command = [sys.executable, str(CHILD), "ready", "--topology", str(topology), "--id", "e"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        fifo = tmp_path / "run/t/e.status"
        while not fifo.exists():
            assert child.poll() is None
        child.send_signal(number)
        _, errors = child.communicate(timeout=100)
    assert (child.returncode, errors) == (0, "e drained\n")


def test_incarnations_rise_even_when_the_clock_is_set_back(tmp_path):
    assert next_incarnation(tmp_path, "e", 1000) == 1000
    assert next_incarnation(tmp_path, "e", 2000) == 2000
    assert next_incarnation(tmp_path, "e", 500) == 2001
    (tmp_path / "e.incarnation").write_text("rubbish")
    assert next_incarnation(tmp_path, "e", 3000) == 3000


def test_an_incarnation_begins_although_its_number_cannot_be_kept(tmp_path):
    missing = tmp_path / "none"
    assert next_incarnation(missing, "e", 1000) == 1000
    (tmp_path / "e.incarnation").mkdir()
    assert next_incarnation(tmp_path, "e", 1000) == 1000
    assert [path.name for path in tmp_path.iterdir()] == ["e.incarnation"]


def test_the_number_of_an_incarnation_is_bounded(tmp_path):
    (tmp_path / "e.incarnation").write_text("9" * 5000)
    assert next_incarnation(tmp_path, "e", 3000) == 3000


def test_a_group_is_the_users_only_if_all_of_it_is():
    mine, bug = UserError("mend me"), ValueError("bug")
    assert user_error_of(ExceptionGroup("", [ExceptionGroup("", [mine])])) is mine
    assert user_error_of(ExceptionGroup("", [mine, bug])) is None
    assert first_line(ExceptionGroup("", [bug])) == "ValueError: bug"
    assert first_line(KeyError()) == "KeyError"
