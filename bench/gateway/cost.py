"""What a gateway costs: microseconds of its CPU per streamed token, everything included, or its memory.

    python -m bench.gateway.cost [--streams N ...] [--tokens N] [--step-ms MS] [--runs N] [--record] [--model REFERENCE]
    python -m bench.gateway.cost --requests N

A real gateway process behind real HTTP, an engine that computes nothing, and a client in this process. The gateway's
CPU time (user and system) is read before and after, and divided by the tokens that reached the client. With
``--requests``, so many short ones are sent, and its resident memory is told after each 2048 of them.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from bench.harness.arguments import script_parser
from bench.live.ports import free_port
from bench.models.references import DEFAULT_MODEL

TOPOLOGY = """
[mesh]
name = "gateway-cost-{port}"
log_level = "warning"
[services.model]
model = {model}
ttft_ms = 60000
tpot_ms = 60000
[gateways.gateway]
port = {port}
max_requests = 4096
{recording}
[engines.engine]
role = "multiplex"
"""
PROMPT = "The quick brown fox jumps over the lazy dog, writes it down, and reads it aloud to everybody who is near."
START_S = 60.0
ANSWER_S = 300.0
PART = 2048  # requests between two looks at memory
AT_ONCE = 24
SHORT = 8  # tokens


@dataclass(frozen=True, slots=True)
class Gateway:
    port: int
    process: psutil.Process

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident_mb(self) -> float:
        return float(self.process.memory_info().rss) / 1e6


@contextmanager
def mesh(model: str, step_ms: float, *, records: bool) -> Iterator[Gateway]:
    """A gateway and a scripted engine, until the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        file = Path(folder) / "topology.toml"
        recording = 'recording = "cost.jsonl"' if records else ""
        file.write_text(TOPOLOGY.format(port=port, model=json.dumps(model), recording=recording))
        environment = os.environ | {"MESHSERVE_RUNTIME_DIR": folder}
        gateway = subprocess.Popen(command("router", file, "gateway"), env=environment)
        engine = subprocess.Popen(
            command("bench.gateway.scripted_engine", file, "engine", str(step_ms)), env=environment
        )
        try:
            asyncio.run(until_ready(port))
            yield Gateway(port, psutil.Process(gateway.pid))
        finally:
            for process in (gateway, engine):
                process.terminate()
                process.wait(START_S)


def command(module: str, topology: Path, process: str, *more: str) -> list[str]:
    return [sys.executable, "-m", module, *more, "--topology", str(topology), "--id", process]


async def until_ready(port: int) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(START_S):
        while True:
            try:
                if (await client.get(f"http://127.0.0.1:{port}/health")).is_success:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.1)


async def stream(port: int, num_tokens: int) -> int:
    """Read one streamed answer; the number of its events with text."""
    body = {
        "model": "model",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": num_tokens,
        "stream": True,
    }
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\nconnection: close\r\n\r\n"
    )
    writer.write(head.encode() + data)
    received = await reader.read(-1)
    writer.close()
    if b"data: [DONE]" not in received:
        raise RuntimeError(f"the stream broke off: {received[-500:]!r}")
    return received.count(b'"delta":{"content"')


async def measure(gateway: Gateway, num_streams: int, num_tokens: int) -> float:
    """CPU seconds per token."""
    before = gateway.cpu_s()
    async with asyncio.timeout(ANSWER_S):
        counts = await asyncio.gather(*(stream(gateway.port, num_tokens) for _ in range(num_streams)))
    return (gateway.cpu_s() - before) / sum(counts)


async def send_many(gateway: Gateway, num_requests: int) -> None:
    """Short ones, some at once."""
    left = iter(range(num_requests))

    async def one_by_one() -> None:
        for _ in left:
            await stream(gateway.port, SHORT)

    await asyncio.gather(*(one_by_one() for _ in range(AT_ONCE)))


def print_memory(gateway: Gateway, num_requests: int) -> None:
    print(f"{0:6d} requests: {gateway.resident_mb():.1f} MB")
    for first in range(0, num_requests, PART):
        count = min(PART, num_requests - first)
        asyncio.run(send_many(gateway, count))
        print(f"{first + count:6d} requests: {gateway.resident_mb():.1f} MB")


def main() -> None:
    parser = script_parser("bench.gateway.cost", __doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="whose tokenizer to use; must be prepared")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32], help="concurrent streams")
    parser.add_argument("--tokens", type=int, default=500, help="of each stream")
    parser.add_argument("--step-ms", type=float, default=5.0, help="time between two tokens of a stream")
    parser.add_argument("--record", action="store_true", help="keep a recording meanwhile")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--requests", type=int, metavar="N", help="send so many short ones, and tell of memory instead")
    arguments = parser.parse_args()
    with mesh(arguments.model, arguments.step_ms, records=arguments.record) as gateway:
        asyncio.run(measure(gateway, 2, 50))
        if arguments.requests:
            print_memory(gateway, arguments.requests)
            return
        for num_streams in arguments.streams:
            costs = [asyncio.run(measure(gateway, num_streams, arguments.tokens)) * 1e6 for _ in range(arguments.runs)]
            runs = ", ".join(f"{cost:.1f}" for cost in costs)
            print(f"{num_streams:4d} streams: {statistics.median(costs):6.1f} us of gateway CPU per token ({runs})")


if __name__ == "__main__":
    main()
