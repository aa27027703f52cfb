"""Servers as processes of this machine: started, waited for, and the CPU that they use. One is a gateway of ours."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from bench.live.ports import free_port
from mesh.errors import UserError

MODEL = "model"  # the name under which every server serves its model
STOP_S = 60.0
TOPOLOGY = """
[mesh]
name = "gateway-{port}"
log_level = "warning"
[services.model]
model = {model}
ttft_ms = 60000
tpot_ms = 60000
[gateways.gateway]
port = {port}
max_requests = 4096
[engines.engine]
role = "multiplex"
"""

FORWARDING = """
[mesh]
name = "gateway-{port}"
log_level = "warning"
[services.model]
ttft_ms = 60000
tpot_ms = 60000
[gateways.gateway]
port = {port}
max_requests = 4096
[engines.engine]
backend = "openai"
url = {url}
max_running = 4096
"""


@dataclass(frozen=True, slots=True)
class Server:
    """``log`` holds what it writes; without one, that goes where our own output goes."""

    name: str
    port: int
    process: psutil.Process
    log: Path | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def pids(self) -> list[int]:
        """Return the server's own process and all that it started."""
        return [self.process.pid, *(child.pid for child in self.process.children(recursive=True))]

    def cpu_s(self) -> float:
        """Return the CPU time of all threads of its own process, user and system."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def until_it_answers(self, limit_s: float = 60.0) -> None:
        """Raise `UserError` if it ends first, or takes longer."""
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
        deadline = time.monotonic() + limit_s
        with httpx.Client(base_url=self.url, timeout=60.0) as client:
            while time.monotonic() < deadline and self._is_alive():
                with suppress(httpx.TransportError):
                    if client.post("/v1/chat/completions", json=asked).is_success:
                        return
                time.sleep(0.1)
        raise UserError(f"{self.name} did not start; its last words: {self._last_words()}")

    def _is_alive(self) -> bool:
        return bool(self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE)

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log else []
        return " / ".join(lines[-3:]) or "nothing"


@contextmanager
def started(
    name: str, port: int, command: Sequence[str], log: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start a server in a process group of its own. It ends with the block."""
    out = log.open("wb") if log else None
    running = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT if out else None,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    try:
        yield Server(name, port, psutil.Process(running.pid), log)
    finally:
        running.terminate()
        try:
            running.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        if out:
            out.close()


@contextmanager
def one_gateway(name: str, model: str, step_ms: float) -> Iterator[Server]:
    """Start a gateway before an engine that says a token of each request every ``step_ms`` and computes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        port, own = free_port(), {"MESHSERVE_RUNTIME_DIR": folder}
        file = str(write_topology(Path(folder), model, port))
        router = [sys.executable, "-m", "router", "--topology", file, "--id", "gateway"]
        engine = [sys.executable, "-m", "bench.gateway.scripted_engine", str(step_ms), "--topology", file]
        with (
            started(name, port, router, None, own) as gateway,
            started("engine", 0, [*engine, "--id", "engine"], None, own),
        ):
            gateway.until_it_answers()
            yield gateway


@contextmanager
def forwarding_gateway(name: str, backend: str) -> Iterator[Server]:
    """Start a gateway before the server at ``backend``, which it passes everything on to."""
    with tempfile.TemporaryDirectory() as folder:
        port, file = free_port(), Path(folder) / "topology.toml"
        file.write_text(FORWARDING.format(port=port, url=json.dumps(backend)))
        router = [sys.executable, "-m", "router", "--topology", str(file), "--id", "gateway"]
        with started(name, port, router, None, {"MESHSERVE_RUNTIME_DIR": folder}) as gateway:
            gateway.until_it_answers()
            yield gateway


def write_topology(folder: Path, model: str, port: int) -> Path:
    file = folder / "topology.toml"
    file.write_text(TOPOLOGY.format(port=port, model=json.dumps(model)))
    return file
