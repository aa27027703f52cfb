"""Clients that note when each token came, leave when they are told to, or read slowly."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from bench.harm.http import BROKEN, Line, line, request

SLOW_BUFFER_BYTES = 2**16
NO_ANSWER = 0  # stands for a status: the connection ended before its answer began
REFUSALS = (429, 503)
EVENT = b"data: "


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion. ``tokenwise``: with log-probabilities, which name each token; else there is only text."""

    prompt: tuple[int, ...]
    max_tokens: int
    seed: int
    temperature: float = 1.0  # 0: greedy
    stream: bool = True
    tokenwise: bool = False

    def body(self, model: str) -> dict[str, object]:
        body: dict[str, object] = {"model": model, "ignore_eos": True, **asdict(self)}
        if body.pop("tokenwise"):
            body["logprobs"] = 0
        return body


@dataclass(slots=True)
class Visit:
    """What a client saw. Times are of `time.monotonic`; ``arrivals`` are (time, pieces so far).

    ``pieces`` are tokens of a tokenwise answer, else characters: a token of the tiny model is at most one of them.
    """

    name: str
    port: int
    ask: Ask
    sent_at: float = 0.0
    is_connected: bool = False
    status: int | None = None  # None: no answer yet
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    finish: str | None = None
    answer_id: str = ""
    problem: str | None = None
    has_left: bool = False
    ended_at: float | None = None

    @property
    def request(self) -> str:
        """Its id inside the mesh, once the first token is here."""
        return f"{self.name}-{self.answer_id.removeprefix('cmpl-')}-0"

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None

    @property
    def is_whole(self) -> bool:
        return self.status == 200 and self.finish is not None and self.problem is None

    @property
    def was_refused(self) -> bool:
        """Told to come back later, before anything of an answer; or nobody listened."""
        return (self.status in REFUSALS or not self.is_connected) and not self.pieces

    def gaps(self) -> list[tuple[float, float]]:
        """When each pause between tokens began, and how long it was."""
        times = [at for at, _ in self.arrivals]
        if self.pieces and self.ended_at is not None and not self.is_whole and not self.has_left:
            times.append(self.ended_at)
        return [(before, after - before) for before, after in pairwise(times)]

    def take(self, answer: Mapping[str, Any], now: float) -> None:
        """An answer, or a part of one."""
        self.answer_id = str(answer.get("id", self.answer_id))
        if "error" in answer:
            self.problem = str(answer["error"].get("message", answer["error"]))
        for choice in answer.get("choices", ()):
            logprobs = choice.get("logprobs")
            self.pieces += logprobs["tokens"] if logprobs else choice["text"]
            self.finish = choice.get("finish_reason") or self.finish
            self.arrivals.append((now, len(self.pieces)))


class Client:
    """One visit, to be run as a task. A slow one reads only while ``may_read`` is set, and its buffers are small."""

    def __init__(self, visit: Visit, model: str, headers: Mapping[str, str] | None = None, *, is_slow: bool = False):
        self.visit = visit
        self.may_read = asyncio.Event()
        if not is_slow:
            self.may_read.set()
        body = json.dumps(visit.ask.body(model)).encode()
        self._data = request(visit.port, "/v1/completions", body, {"x-request-id": visit.name, **(headers or {})})
        self._receive_bytes = SLOW_BUFFER_BYTES if is_slow else None
        self._line: Line | None = None

    async def run(self) -> Visit:
        visit = self.visit
        visit.sent_at = time.monotonic()
        try:
            async with line(visit.port, receive_bytes=self._receive_bytes) as self._line:
                visit.is_connected = True
                await self._exchange(self._line)
        except BROKEN as error:
            if not visit.has_left:
                visit.problem = visit.problem or f"the connection broke: {error}"
                visit.status = NO_ANSWER if visit.status is None else visit.status
        finally:
            visit.ended_at = time.monotonic()
        return visit

    def leave(self) -> None:
        """Go away without a word, unless the answer is here already."""
        if self.visit.is_over:
            return
        self.visit.has_left = True
        if self._line is not None:
            self._line.close()

    async def _exchange(self, opened: Line) -> None:
        visit = self.visit
        if visit.has_left:
            return
        await opened.send(self._data)
        visit.status, visit.headers = await opened.head()
        if visit.status == 200 and visit.ask.stream:
            await self._read_events(opened)
        else:
            visit.take(json.loads(b"".join([part async for part in opened.body(visit.headers)])), time.monotonic())

    async def _read_events(self, opened: Line) -> None:
        while True:
            await self.may_read.wait()
            event = await opened.line()
            if not event:
                raise ConnectionResetError("it ended before the answer did")
            if event.startswith(EVENT + b"{"):
                self.visit.take(json.loads(event.removeprefix(EVENT)), time.monotonic())
            elif event.startswith(EVENT + b"[DONE]"):
                return
