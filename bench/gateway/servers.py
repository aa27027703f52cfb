"""Servers as processes of this machine: started, waited for, and the CPU that they use."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from mesh.errors import UserError

MODEL = "model"  # the name under which every server serves its model
STOP_S = 60.0


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
        """The server's own, and those of all that it started."""
        return [self.process.pid, *(child.pid for child in self.process.children(recursive=True))]

    def until_it_answers(self, limit_s: float = 60.0) -> None:
        """Raise `UserError` if it ends first, or takes longer."""
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
        deadline = time.monotonic() + limit_s
        with httpx.Client(base_url=self.url, timeout=60.0) as client:
            while time.monotonic() < deadline and is_alive(self.process):
                with suppress(httpx.TransportError):
                    if client.post("/v1/chat/completions", json=asked).is_success:
                        return
                time.sleep(0.1)
        raise UserError(f"{self.name} did not start; its last words: {self._last_words()}")

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log else []
        return " / ".join(lines[-3:]) or "nothing"


@contextmanager
def started(
    name: str, port: int, command: Sequence[str], log: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A server in a process group of its own, which ends with the block."""
    with process(command, log, environment) as running:
        yield Server(name, port, running, log)


@contextmanager
def process(
    command: Sequence[str], log: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[psutil.Process]:
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
        yield psutil.Process(running.pid)
    finally:
        running.terminate()
        try:
            running.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        if out:
            out.close()


def is_alive(running: psutil.Process) -> bool:
    return bool(running.is_running() and running.status() != psutil.STATUS_ZOMBIE)


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """CPU time of all their threads, user and system."""
    each = [one.cpu_times() for one in processes]
    return float(sum(times.user + times.system for times in each))
