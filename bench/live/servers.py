"""Servers as processes of this machine: started, waited for, and the CPU that they use."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

import httpx
import psutil

from bench.load.client.http import Address
from bench.load.leaving import leaving_at_sigterm
from mesh.errors import UserError

MODEL = "model"  # the name under which every server serves its model
STOP_S = 60.0
SAID_BYTES = 4096  # of what a server wrote last


@dataclass(frozen=True, slots=True)
class Server:
    """``log`` holds what it writes."""

    name: str
    port: int
    process: psutil.Process
    log: IO[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.port)

    def pids(self) -> list[int]:
        """Return the server's own process and all that it started."""
        return [self.process.pid, *(child.pid for child in self.process.children(recursive=True))]

    def until_it_answers(self, limit_s: float) -> None:
        """Raise `UserError` if it ends first, or takes longer."""
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
        deadline = time.monotonic() + limit_s
        with httpx.Client(base_url=self.url, timeout=60.0) as client:
            while time.monotonic() < deadline and self._is_alive():
                with suppress(httpx.TransportError):
                    if client.post("/v1/chat/completions", json=asked).is_success:
                        return
                time.sleep(0.1)
        raise UserError(f"{self.name} did not start; it wrote last: {self._last_line()}")

    def _is_alive(self) -> bool:
        try:
            return bool(self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    def _last_line(self) -> str:
        end = os.fstat(self.log.fileno()).st_size
        said = os.pread(self.log.fileno(), SAID_BYTES, max(0, end - SAID_BYTES))
        return " / ".join(said.decode(errors="replace").strip().splitlines()[-3:]) or "nothing"


@contextmanager
def started(
    name: str,
    port: int,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    answers_within_s: float | None = 60.0,
) -> Iterator[Server]:
    """Start a server in a process group of its own, and wait until it answers; None: it answers nobody. It ends with
    the block. Raise `UserError` if it ends first, or takes longer.
    """
    with tempfile.TemporaryFile() as log, leaving_at_sigterm():
        running = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            server = Server(name, port, psutil.Process(running.pid), log)
            if answers_within_s is not None:
                server.until_it_answers(answers_within_s)
            yield server
        finally:
            running.terminate()
            try:
                running.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
