"""What a gateway's own code takes for a token and for a request that it passes on: microseconds, no system call.

    python -m bench.gateway.forward_path [--rounds N]

As `bench.gateway.path`, with a server of others in the place of an engine: its answers come as the bytes of HTTP, too.
Other work on the machine comes into the medians, and less into the least rounds.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.gateway.path import END, NUM_STREAMS, Connection, Gateway, request, until
from bench.gateway.servers import FORWARDING
from bench.harness.arguments import script_parser
from bench.live.servers import MODEL
from mesh.process.garbage import spare_what_is_loaded
from mesh.process.logs import configure
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from router.api.forward.models import ForwardedModel
from router.api.http.callers import ClientPeers, OpenCallers
from router.api.openai.models import Models
from router.servers.facts import ServedName, ServerFacts, ServerKind
from router.servers.http import open_client

LONG: Final = 16  # tokens of an answer, where tokens count and not requests
WARM_UP: Final = 20  # rounds
REST_S: Final = 0.02  # between rounds: a status of the server
HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ENVELOPE: Final = {"id": "mock", "object": "chat.completion.chunk", "created": 0, "model": MODEL}


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(**fields: object) -> bytes:
    return chunk(b"data: " + json.dumps(ENVELOPE | fields).encode() + b"\n\n")


TOKEN: Final = event(choices=[{"index": 0, "delta": {"content": " a"}, "finish_reason": None}])
LAST: Final = event(choices=[{"index": 0, "delta": {}, "finish_reason": "length"}])
USAGE: Final = event(choices=[], usage={"prompt_tokens": 64, "completion_tokens": LONG})
DONE: Final = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class ToServer(Connection):
    """A connection to the server, by which something was asked."""

    def __init__(self, ask: Callable[[], None]) -> None:
        super().__init__()
        self._ask = ask

    def write(self, data: Any) -> None:
        self._ask()

    def abort(self) -> None:
        """It was idle for too long."""


class Loop(uvloop.Loop):
    """Connects to no server, and keeps who asked one."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Protocol] = []

    async def create_connection(  # type: ignore[override]
        self, make: Callable[[], asyncio.Protocol], *_: Any, **__: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        protocol = make()
        transport = ToServer(lambda: self.asked.append(protocol))
        protocol.connection_made(transport)
        return transport, protocol


class Rounds:
    """Requests for a server's answers, over connections that stay."""

    def __init__(self, topology: Topology, asked: list[asyncio.Protocol]) -> None:
        models = Models((), [ForwardedModel.of(service) for service in topology.services])
        gateway = Gateway(topology, OpenCallers(ClientPeers()), models=models)
        adapter = gateway.router._servers.find("server")
        assert adapter is not None
        adapter._client = open_client(adapter._server, None)
        adapter._pace.start(0.0)
        facts = ServerFacts(ServerKind.OPENAI, "", (ServedName(MODEL),))
        adapter._carry_out(adapter.core.found(facts, time.monotonic()))
        self._asked = asked
        self._connections = [gateway.connect() for _ in range(NUM_STREAMS)]

    async def play(self, num_tokens: int) -> list[float]:
        """Seconds of a request by its parts: until the server is asked, and each of its tokens, the last with the end
        of the answer.
        """
        data, count = request(num_tokens, None), len(self._connections)
        self._asked.clear()
        start = time.thread_time()
        for protocol, connection in self._connections:
            connection.received.clear()
            protocol.data_received(data)
        await until(lambda: len(self._asked) == count)
        seconds = [time.thread_time() - start]
        for index in range(num_tokens):
            is_last = index == num_tokens - 1
            start = time.thread_time()
            for one in self._asked:
                for piece in (*((HEAD,) if not index else ()), TOKEN, *((LAST, USAGE, DONE) if is_last else ())):
                    one.data_received(piece)
            await until(self._are_done if is_last else lambda: True)
            seconds.append(time.thread_time() - start)
        return [second / count for second in seconds]

    def _are_done(self) -> bool:
        return all(connection.received.endswith(END) for _, connection in self._connections)


async def measure(topology: Topology, num_rounds: int) -> tuple[list[float], list[float]]:
    """Microseconds of a token of a longer answer, and of a request with one token, by round."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    rounds = Rounds(topology, loop.asked)
    for _ in range(WARM_UP):
        await rounds.play(LONG)
    spare_what_is_loaded()
    tokens_us, requests_us = list[float](), list[float]()
    for _ in range(num_rounds):
        tokens_us.append(1e6 * statistics.mean((await rounds.play(LONG))[2:-1]))
        await asyncio.sleep(REST_S)
        requests_us.append(1e6 * sum(await rounds.play(1)))
        await asyncio.sleep(REST_S)
    return tokens_us, requests_us


def main() -> None:
    options = script_parser("bench.gateway.forward_path", __doc__, rounds=60).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, settings = Path(folder) / "topology.toml", {"urls": '["http://server"]', "policy": '"tropical"'}
        file.write_text(FORWARDING.format(port=8000, ttft_ms=60_000, tpot_ms=60_000, max_running=4096, **settings))
        topology = load(file)
        configure("gateway", topology.log_level, Path(folder) / "log")
        with asyncio.Runner(loop_factory=Loop) as runner:
            measured = runner.run(measure(topology, options.rounds))
    for what, found in zip(("a token", "a request of one token"), measured, strict=True):
        print(f"{what}: {min(found):.1f} us at least, {statistics.median(found):.1f} in the middle")


if __name__ == "__main__":
    main()
