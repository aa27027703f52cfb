"""Loads of live benches: what a client process sends, in which order, and what it tells."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Thread

import pytest

from bench.live.sending import send, shapes_of, token_prompts
from bench.load.client.http import Address
from bench.load.generator.wire import Pace
from bench.load.results.outcome import Promise
from simulation.loads.trace_request import TraceRequest

REQUESTS = [TraceRequest(0.0, 20, 2, slo_ttft_s=0.5), TraceRequest(0.0, 30, 2, service="other")]


@dataclass
class Server:
    """Says "Hello" to everybody, and remembers what it was asked, by the length of the prompt."""

    port: int = 0
    asked: dict[int, dict[str, object]] = field(default_factory=dict)
    num_here: int = 0
    most_here: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_here += 1
        self.most_here = max(self.most_here, self.num_here)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        heads = dict(line.split(": ", 1) for line in lines[1:] if line)
        body = json.loads(await reader.readexactly(int(heads["content-length"])))
        self.asked[len(body["prompt"])] = {**body, "ttft": heads.get("x-slo-ttft-ms")}
        await asyncio.sleep(0.05)
        self.num_here -= 1
        pieces = "".join(f'data: {{"choices": [{{"text": "{piece}"}}]}}\n\n' for piece in ("Hel", "lo"))
        writer.write(f"HTTP/1.1 200 OK\r\n\r\n{pieces}data: [DONE]\n\n".encode())
        writer.close()


@pytest.fixture
def server() -> Iterator[Server]:
    """In a thread of its own: `send` has an event loop of its own."""
    server, loop = Server(), asyncio.new_event_loop()
    listening = loop.run_until_complete(asyncio.start_server(server.serve, "127.0.0.1", 0))
    server.port = listening.sockets[0].getsockname()[1]
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        listening.close()
        loop.run_until_complete(listening.wait_closed())
        loop.close()


@pytest.mark.parametrize(("pace", "most_at_once"), [(Pace(num_slots=1), 1), (Pace((0.0, 0.0)), 2)])
def test_requests_go_one_by_one_or_at_their_times(server: Server, pace: Pace, most_at_once: int):
    told, address = list[int](), Address("127.0.0.1", server.port)
    found = send(address, token_prompts(7), shapes_of(REQUESTS, "one"), pace, keeps_text=True, heard=told.append)
    assert [(one.number, one.text, one.is_finished) for one in found] == [(0, "Hello", True), (1, "Hello", True)]
    assert (server.most_here, told[-1]) == (most_at_once, 2)
    first, second = server.asked[20], server.asked[30]
    assert (first["model"], first["ttft"]) == ("one", "500.000")
    assert (second["model"], second["ttft"]) == ("other", None)
    assert first["prompt"][:16] != second["prompt"][:16]  # type: ignore[index]


def test_promises_are_those_of_the_requests():
    assert [shape.promise for shape in shapes_of(REQUESTS, "one")] == [Promise(ttft_s=0.5), Promise()]
