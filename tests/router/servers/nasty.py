"""A server with the OpenAI API that does what a test tells it, byte by byte: most of it is what no server should do."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

Behaviour = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Asked:
    """One request: its line, its headers in lower case, and its body."""

    line: str
    headers: dict[str, str]
    body: Any
    gone: asyncio.Event

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(chunk: object) -> bytes:
    return chunked(b"data: " + (chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode()) + b"\n\n")


def chunk(text: str | None = None, finish: str | None = None, **more: object) -> dict[str, Any]:
    delta = {"role": "assistant"} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    return {"id": "theirs", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def whole(body: object, status: str = "200 OK", headers: str = "content-type: application/json\r\n") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\n{headers}content-length: {len(data)}\r\n\r\n".encode() + data


async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """As many tokens as are asked for, at once; "w0", "w1" and so on."""
    number = asked.body.get("max_tokens") or 3
    usage = {"prompt_tokens": 7, "completion_tokens": number}
    if not asked.body.get("stream"):
        text = "".join(f"w{index} " for index in range(number))
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        writer.write(whole({"id": "theirs", "model": "m", "choices": [choice], "usage": usage, "extra": [1]}))
        return
    writer.write(STREAM + event(chunk()))
    for index in range(number):
        writer.write(event(chunk(f"w{index} ")))
    writer.write(event(chunk("", "stop")) + event({**chunk(), "choices": [], "usage": usage}))
    writer.write(event(b"[DONE]") + b"0\r\n\r\n")


def says(data: bytes, *, then_closes: bool = False) -> Behaviour:
    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if then_closes:
            await writer.drain()
            writer.close()

    return behave


async def hangs(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Says nothing until its client is gone."""
    await asked.gone.wait()


@dataclass
class NastyServer:
    """``behaviour``: how it answers POST requests now; GET requests are answered as any server would."""

    behaviour: Behaviour = answer
    asked: list[Asked] = field(default_factory=list)
    num_gone: int = 0  # clients that closed their connections while they were answered
    models: tuple[str, ...] = ("m",)  # that it lists
    metrics: bytes | None = None  # None: it has none
    is_deaf: bool = False  # it closes what connects
    port: int = 0
    certificates: ssl.SSLContext | None = None  # it speaks TLS
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http{'s' if self.certificates else ''}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.certificates)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop at once, connections and all."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while not self.is_deaf and not writer.is_closing():
                    await self._exchange(reader, writer)
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(line, headers, json.loads(body) if body else None, asyncio.Event())
        if line.startswith("GET"):
            listed = [{"id": name, "object": "model", "owned_by": "me"} for name in self.models]
            models = {"object": "list", "data": listed}
            known = {"/v1/models": models, "/version": {"version": "0.32.0"}, "/metrics": self.metrics}.get(asked.path)
            writer.write(whole({}, "404 Not Found") if known is None else whole(known))
            return
        self.asked.append(asked)
        await self._behave(asked, reader, writer)

    async def _behave(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behaving = asyncio.ensure_future(self.behaviour(asked, writer))
        watching = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({behaving, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.exception()
            self.num_gone += 1
            asked.gone.set()
            behaving.cancel()
            raise ConnectionError
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await behaving
        await writer.drain()


@asynccontextmanager
async def serving(*behaviours: Behaviour):
    """As many servers, until the end."""
    servers = [NastyServer(behaviour) for behaviour in behaviours]
    for server in servers:
        await server.start()
    try:
        yield servers
    finally:
        for server in servers:
            await server.stop()
