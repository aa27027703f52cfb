"""Outcomes by hand, and a server that says what it is told to."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bench.load.client.http import Address
from bench.load.generator.wire import Assignment, Pace, Piece, Recipe, Shape
from bench.load.results.outcome import Failure, Outcome

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def outcome(number: int = 0, **fields: object) -> Outcome:
    """Due at 1 s; 5 tokens, the first after 0.5 s, then one each 0.1 s."""
    known: dict[str, object] = {
        "model": "tiny",
        "due_s": 1.0,
        "woke_s": 1.0,
        "sent_s": 1.0,
        "ended_s": 1.9,
        "first_s": 1.5,
        "last_s": 1.9,
        "itls_s": [0.1] * 4,
        "input_tokens": 10,
        "output_tokens": 5,
        "num_chunks": 5,
        "is_counted": True,
        "status": 200,
    }
    return Outcome(number=number, **{**known, **fields})  # type: ignore[arg-type]


def failed(failure: Failure, number: int = 0, **fields: object) -> Outcome:
    lost: dict[str, object] = {"first_s": None, "last_s": None, "itls_s": [], "output_tokens": 0, "status": 0}
    return outcome(number, failure=failure, **{**lost, **fields})


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def stream_of(words: Sequence[str], **usage: int) -> bytes:
    """A whole answer, in one chunk."""
    events = [json.dumps({"choices": [{"index": 0, "text": word}]}) for word in words]
    if usage:
        events.append(json.dumps({"choices": [], "usage": usage}))
    data = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()
    return HEAD + chunked(data) + b"0\r\n\r\n"


@dataclass(slots=True)
class Asked:
    """A request as the server got it."""

    head: str
    body: bytes
    writer: asyncio.StreamWriter


@dataclass(slots=True)
class Server:
    address: Address
    asked: list[Asked] = field(default_factory=list)
    num_connections: int = 0


Answering = Callable[[Asked], Awaitable[None]]


@asynccontextmanager
async def server(answer: Answering) -> AsyncIterator[Server]:
    """On a port of its own; ``answer`` writes to ``asked.writer``, and may close it."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        found.num_connections += 1
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((line for line in head.lower().splitlines() if line.startswith("content-length")), ": 0")
                asked = Asked(head, await reader.readexactly(int(length.partition(":")[2])), writer)
                found.asked.append(asked)
                await answer(asked)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    found = Server(Address("127.0.0.1", listening.sockets[0].getsockname()[1]))
    try:
        yield found
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listening.wait_closed()


FILLERS = tuple(Piece(f" w{index}", (index,)) for index in range(20))


def assignment(address: Address, shapes: Sequence[Shape], pace: Pace, **fields: object) -> Assignment:
    recipe = Recipe("completions", sends_ids=True, seed=0, fillers=FILLERS)
    return Assignment(address, {}, recipe, tuple(shapes), pace, **{"timeout_s": 30.0, **fields})  # type: ignore[arg-type]


SHAPE = Shape("tiny", 4, 2)
