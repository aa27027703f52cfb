"""Meshes and servers of benches end with them, also when a bench is told to end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.live import mesh as live
from bench.live.mesh import live_mesh
from bench.load.leaving import leaving_at_sigterm


def test_a_bench_that_is_told_to_end_takes_its_mesh_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "t.toml").write_text('[services.m]\nmodel = "pypi:a==1/b.gguf"\n[engines.e]\n[gateways.g]\n')
    asked = []

    def command(environment, limit_s, *arguments):
        asked.append(arguments[0])
        os.kill(os.getpid(), signal.SIGTERM)  # `timeout` sends it twice
        return subprocess.CompletedProcess(arguments, 0, "", "")

    monkeypatch.setattr(live, "mesh_command", command)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), live_mesh(tmp_path / "t.toml"):
        raise AssertionError("it goes on")
    assert asked == ["up", "down"]
    assert signal.getsignal(signal.SIGTERM) is before


BENCH = """
import sys
from bench.live.servers import started
with started("s", 1, [sys.executable, "-c", "import time; time.sleep(600)"], answers_within_s=None) as server:
    print(server.process.pid, flush=True)
    import time
    time.sleep(600)
"""


def test_a_server_ends_with_a_bench_that_timeout_ends():
    command = [sys.executable, "-c", BENCH]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as bench:
        assert bench.stdout is not None
        server = int(bench.stdout.readline())
        bench.terminate()
        assert bench.wait(60) != 0
    assert not Path(f"/proc/{server}").exists()


def _is_told_to_end_twice() -> None:
    with leaving_at_sigterm():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)


def test_the_signal_counts_once():
    with pytest.raises(KeyboardInterrupt):
        _is_told_to_end_twice()
