"""The parent's end of `bench.peers.rounds`: an engine in a process of its own, asked to measure rounds."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.peers.rounds import Measured, Round

ROOT = Path(__file__).resolve().parents[2]
START_S, ROUND_S, END_S = 900.0, 300.0, 10.0


class ChildError(RuntimeError):
    """An engine did not start or answer. The message holds its last words."""


class Child:
    """An engine in a process of its own; see `bench.peers.rounds.Answers`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> "Child":
        """Raise `ChildError` unless it gets ready."""
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                env=environment,
            )
        child = cls(name, process, log)
        try:
            await child._answer(START_S)
        except BaseException:
            await child.stop()
            raise
        return child

    async def measure(self, work: Round) -> Measured:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(work)).encode() + b"\n")
        return Measured(**json.loads(await self._answer(ROUND_S)))

    async def _answer(self, deadline_s: float) -> bytes:
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), deadline_s)
        except TimeoutError:
            raise ChildError(f"{self.name} did not answer in {deadline_s:.0f} s: {self._last_words()}") from None
        if not line:
            raise ChildError(f"{self.name} ended: {self._last_words()}")
        return line

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    async def stop(self) -> None:
        """Let it end; kill it if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), END_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
