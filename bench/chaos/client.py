"""HTTP clients that note when each token came, leave when they are told to, or read slowly."""

import asyncio
import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

LINE_LIMIT = 2**16  # bytes
SLOW_BUFFER_BYTES = 2**16
BROKEN = 0  # stands for a status: the connection ended before its answer was whole
REFUSALS = (429, 503)


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
        del body["tokenwise"]
        if self.tokenwise:
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

    def take(self, choice: Mapping[str, Any], now: float) -> None:
        """One choice of an answer or of a chunk."""
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
        self._model = model
        self._headers = {"x-request-id": visit.name, **(headers or {})}
        self._is_slow = is_slow
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> Visit:
        visit = self.visit
        visit.sent_at = time.monotonic()
        try:
            await self._exchange()
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            if not visit.has_left:
                visit.problem = visit.problem or f"the connection broke: {error}"
                visit.status = BROKEN if visit.status is None else visit.status
        finally:
            visit.ended_at = time.monotonic()
            if self._writer is not None:
                await _close(self._writer)
        return visit

    def leave(self) -> None:
        """Go away without a word, unless the answer is here already."""
        if self.visit.is_over:
            return
        self.visit.has_left = True
        if self._writer is not None:
            self._writer.transport.abort()

    async def _exchange(self) -> None:
        reader, self._writer = await self._open()
        if self.visit.has_left:
            return
        body = json.dumps(self.visit.ask.body(self._model)).encode()
        lines = [
            "POST /v1/completions HTTP/1.1",
            "host: localhost",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.visit.headers = _headers(head)
        self.visit.status = int(head.split(" ", 2)[1])
        if self.visit.status == 200 and self.visit.ask.stream:
            await self._read_events(reader)
        else:
            await self._read_whole(reader)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = socket.socket()
        if self._is_slow:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER_BYTES)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.visit.port))
        except BaseException:
            connection.close()
            raise
        self.visit.is_connected = True
        return await asyncio.open_connection(sock=connection, limit=LINE_LIMIT)

    async def _read_events(self, reader: asyncio.StreamReader) -> None:
        while True:
            await self.may_read.wait()
            line = await reader.readline()
            if not line:
                raise ConnectionResetError("it ended before the answer did")
            if line.startswith(b"data: {"):
                self._take(json.loads(line[len(b"data: ") :]))
            elif line.startswith(b"data: [DONE]"):
                return

    async def _read_whole(self, reader: asyncio.StreamReader) -> None:
        size = self.visit.headers.get("content-length")
        answer = json.loads(await reader.readexactly(int(size)) if size else await reader.read(-1))
        self._take(answer)

    def _take(self, answer: Mapping[str, Any]) -> None:
        self.visit.answer_id = str(answer.get("id", self.visit.answer_id))
        if "error" in answer:
            self.visit.problem = str(answer["error"].get("message", answer["error"]))
        for choice in answer.get("choices", ()):
            self.visit.take(choice, time.monotonic())


def _headers(head: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in head.splitlines()[1:])
    return {name.strip().lower(): value.strip() for name, _, value in pairs if name.strip()}


async def fetch(port: int, path: str, limit_s: float = 5.0) -> Any:
    """The JSON that a gateway answers; None if it does not."""
    with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
            try:
                await reader.readuntil(b"\r\n\r\n")
                return json.loads(await reader.read(-1))
            finally:
                await _close(writer)
    return None


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
