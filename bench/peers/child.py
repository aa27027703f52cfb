"""The parent's end of `bench.peers.rounds`: an engine in a process of its own, asked to measure rounds."""

import json
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.peers.rounds import Measured, Round

ROOT = Path(__file__).resolve().parents[2]
START_S = 900.0  # vLLM may compile for minutes
ROUND_S = 600.0
END_S = 10.0


class ChildError(RuntimeError):
    """An engine did not start, answer or keep its deadline. The message says which."""


class Child:
    """An engine in a process of its own; see `bench.peers.rounds.Answers`."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                bufsize=0,  # nothing that `select` does not see waits in a buffer
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                env={**os.environ, **environment},
            )

    def until_ready(self, limit_s: float = START_S) -> None:
        """Raise `ChildError` if it ends instead, or takes longer."""
        self._answer(limit_s)

    def measure(self, work: Round, limit_s: float = ROUND_S) -> Measured:
        """Raise `ChildError` if it ends instead, or takes longer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(work)).encode() + b"\n")
        return Measured(**json.loads(self._answer(limit_s)))

    def _answer(self, limit_s: float) -> bytes:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            self._process.kill()
            raise ChildError(f"{self.name} did not answer within {limit_s:g} s")
        if line := self._process.stdout.readline():
            return line
        words = self._log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise ChildError(f"{self.name} ended: {words[-1]}")

    def stop(self) -> None:
        """Let it end; kill it if it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
