"""Clients that note when each token came, leave when they are told to, or read slowly."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.tools.harm.http import BROKEN, Line, line, request
from tests.tools.harm.meshes import MODEL

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


@dataclass(slots=True, eq=False)
class Client:
    """One request, to be run as a task, and what came of it. Times are of `time.monotonic`.

    A slow one reads only while ``may_read`` is set, and its buffers are small. ``pieces`` are tokens of a tokenwise
    answer, else characters: a token of the tiny model is at most one of them. ``arrivals`` are the times of its parts.
    """

    name: str
    port: int
    ask: Ask
    model: str = MODEL
    extra: Mapping[str, str] = field(default_factory=dict)  # headers that it sends
    is_slow: bool = False
    may_read: asyncio.Event = field(default_factory=asyncio.Event)
    sent_at: float = 0.0
    is_connected: bool = False
    status: int | None = None  # None: no answer yet
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    finish: str | None = None
    answer_id: str = ""
    problem: str | None = None
    has_left: bool = False
    ended_at: float | None = None
    _line: Line | None = None

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

    @property
    def was_given_up(self) -> bool:
        """Its task was cancelled before the answer ended."""
        return not self.is_whole and self.problem is None and self.status in (None, 200)

    def moments(self) -> list[float]:
        """When parts of its answer came; and when it broke off, if it did."""
        is_broken = bool(self.pieces) and not self.is_whole and not self.has_left
        return [*self.arrivals, *([self.ended_at] if is_broken and self.ended_at is not None else [])]

    async def run(self) -> "Client":
        self.sent_at = time.monotonic()
        try:
            receive_bytes = SLOW_BUFFER_BYTES if self.is_slow else None
            async with line(self.port, receive_bytes=receive_bytes) as self._line:
                self.is_connected = True
                await self._exchange(self._line)
        except BROKEN as error:
            if not self.has_left:
                self.problem = self.problem or f"the connection broke: {error}"
                self.status = NO_ANSWER if self.status is None else self.status
        finally:
            self.ended_at = time.monotonic()
        return self

    def leave(self) -> None:
        """Go away without a word, unless the answer is here already."""
        if not self.is_over:
            self.has_left = True
            if self._line is not None:
                self._line.close()

    async def _exchange(self, opened: Line) -> None:
        if self.has_left:
            return
        body = json.dumps(self.ask.body(self.model)).encode()
        headers = {"x-request-id": self.name, **self.extra}
        await opened.send(request(self.port, "/v1/completions", body, headers))
        self.status, self.headers = await opened.head()
        if self.status == 200 and self.ask.stream:
            await self._read_events(opened)
        else:
            self._take(json.loads(b"".join([part async for part in opened.body(self.headers)])))

    async def _read_events(self, opened: Line) -> None:
        while True:
            if self.is_slow:
                await self.may_read.wait()
            event = await opened.line()
            if not event:
                raise ConnectionResetError("it ended before the answer did")
            if event.startswith(EVENT + b"{"):
                self._take(json.loads(event.removeprefix(EVENT)))
            elif event.startswith(EVENT + b"[DONE]"):
                return

    def _take(self, answer: Mapping[str, Any]) -> None:
        """An answer, or a part of one."""
        self.answer_id = str(answer.get("id", self.answer_id))
        if "error" in answer:
            self.problem = str(answer["error"].get("message", answer["error"]))
        for choice in answer.get("choices", ()):
            logprobs = choice.get("logprobs")
            self.pieces += logprobs["tokens"] if logprobs else choice["text"]
            self.finish = choice.get("finish_reason") or self.finish
            self.arrivals.append(time.monotonic())
