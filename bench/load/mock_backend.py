"""A server with the OpenAI API that computes nothing: each token comes at its time, whatever the load.

    python -m bench.load.mock_backend [--port P] [--first-ms MS] [--gap-ms MS] [--model NAME]
    python -m bench.load.mock_backend --step-ms MS [--token-us US] [--request-us US] [--chunk-tokens N] ...

The first token comes ``first-ms`` after the request, each later one ``gap-ms`` after the one before: what clients and
proxies measure or cost can be held against that. Answers have as many tokens as they are asked for, each an event of
its own that is written on its own. With ``step-ms``, tokens come from iterations, as a server has them that batches
continuously: each takes ``step-ms``, ``token-us`` for each token of a prompt and ``request-us`` for each answer. They
take three times as long after SIGUSR1, until SIGUSR2. ``/served`` tells how many requests came.
"""

import argparse
import asyncio
import itertools
import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httptools
import uvloop

from bench.harness.arguments import script_parser
from bench.load.mock_batches import MockBatches, MockCosts, MockRequest

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKENS = 16  # where a request does not say
SLOW = 3.0  # times as long


@dataclass(frozen=True, slots=True)
class Pace:
    first_s: float
    gap_s: float


@dataclass(slots=True)
class Served:
    """Requests that came, over all connections."""

    number: int = 0


class Exchanges(asyncio.Protocol):
    """One connection. httptools calls the methods that begin with ``on_``."""

    def __init__(self, pace: Pace, model: str, served: Served, batches: MockBatches | None = None) -> None:
        self._pace, self._model, self._served, self._batches = pace, model, served, batches
        self._parser = httptools.HttpRequestParser(self)
        self._body, self._url = b"", b""
        self._transport: asyncio.Transport | None = None
        self._stream: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._stream is not None:
            self._stream.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            assert self._transport is not None
            self._transport.abort()

    def on_message_begin(self) -> None:
        self._body, self._url = b"", b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        assert self._transport is not None
        path = self._url.partition(b"?")[0]
        if path.endswith(b"/completions"):
            asked = json.loads(self._body)
            self._served.number += 1
            self._stream = asyncio.create_task(self._answer(asked, is_chat=path.endswith(b"/chat/completions")))
        elif path == b"/v1/models":
            self._transport.write(_whole({"object": "list", "data": [{"id": self._model, "object": "model"}]}))
        elif path == b"/health":
            self._transport.write(_whole({}))
        elif path == b"/served":
            self._transport.write(_whole({"served": self._served.number}))
        else:
            self._transport.write(_whole({"error": {"message": "not here"}}, b"404 Not Found"))

    async def _answer(self, asked: dict[str, object], *, is_chat: bool) -> None:
        assert self._transport is not None
        began, pace = time.monotonic(), self._pace
        number = int(str(asked.get("max_tokens") or asked.get("max_completion_tokens") or TOKENS))
        usage = {"completion_tokens": number}
        if isinstance(prompt := asked.get("prompt"), list):
            usage["prompt_tokens"] = len(prompt)
        elif self._batches is not None:
            usage["prompt_tokens"] = len(str(prompt or asked.get("messages")).split())
        name = "chat.completion" if is_chat else "text_completion"
        envelope = {"id": "mock", "object": name, "created": 0, "model": self._model}
        if not asked.get("stream"):
            await asyncio.sleep(pace.first_s + (number - 1) * pace.gap_s)
            words = " a" * number
            said = {"message": {"role": "assistant", "content": words}} if is_chat else {"text": words}
            choice = {"index": 0, "finish_reason": "length", **said}
            self._transport.write(_whole({**envelope, "choices": [choice], "usage": usage}))
            return
        token = {"delta": {"content": " a"}} if is_chat else {"text": " a"}
        chunk = {**envelope, "object": "chat.completion.chunk" if is_chat else name}
        event = _event({**chunk, "choices": [{"index": 0, **token, "finish_reason": None}]})
        if self._batches is not None:
            await self._batched(self._batches, usage["prompt_tokens"], number, event)
        for index in range(number if self._batches is None else 0):
            await asyncio.sleep(max(0.0, began + pace.first_s + index * pace.gap_s - time.monotonic()))
            self._transport.write(HEAD + event if index == 0 else event)
        end: dict[str, object] = {"delta": {}} if is_chat else {"text": ""}
        end_event = _event({**chunk, "choices": [{"index": 0, **end, "finish_reason": "length"}]})
        last = _event({**chunk, "choices": [], "usage": usage})
        self._transport.write(end_event + last + _chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    async def _batched(self, batches: MockBatches, num_input: int, num_output: int, event: bytes) -> None:
        transport = self._transport
        assert transport is not None
        events = itertools.chain([HEAD + event], itertools.repeat(event))
        request = MockRequest(num_input, num_output, lambda: transport.write(next(events)))
        batches.add(request)
        try:
            await request.done.wait()
        finally:
            request.is_left = True


def _event(chunk: dict[str, object]) -> bytes:
    return _chunked(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _whole(body: object, status: bytes = b"200 OK") -> bytes:
    data = json.dumps(body).encode()
    return b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (status, len(data), data)


async def serve(port: int, pace: Pace, model: str, costs: MockCosts | None = None) -> None:
    """Until it is cancelled."""
    loop = asyncio.get_running_loop()
    batches, served = None if costs is None else MockBatches(costs), Served()
    if batches is not None:
        loop.add_signal_handler(signal.SIGUSR1, setattr, batches, "slowness", SLOW)
        loop.add_signal_handler(signal.SIGUSR2, setattr, batches, "slowness", 1.0)
    server = await loop.create_server(lambda: Exchanges(pace, model, served, batches), "127.0.0.1", port)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = script_parser("bench.load.mock_backend", __doc__)
    parser.add_argument("--port", type=int, default=0, help="(default: a free one, which it prints)")
    parser.add_argument("--first-ms", type=float, default=0.0, metavar="MS", help="to the first token (default: 0)")
    parser.add_argument("--gap-ms", type=float, default=0.0, metavar="MS", help="between tokens (default: 0)")
    parser.add_argument("--model", default="mock", metavar="NAME")
    parser.add_argument("--step-ms", type=float, metavar="MS", help="batch continuously: of an iteration")
    parser.add_argument("--token-us", type=float, default=0.0, metavar="US", help="of a prompt's token (default: 0)")
    parser.add_argument("--request-us", type=float, default=0.0, metavar="US", help="... of an answer (default: 0)")
    parser.add_argument("--chunk-tokens", type=int, default=512, metavar="N", help="of an iteration (default: 512)")
    parser.add_argument("--max-running", type=int, default=64, metavar="N", help="requests at a time (default: 64)")
    parser.add_argument(
        "--detach", type=Path, metavar="FILE", help="go on in the background, with the number of the process in FILE"
    )
    options = parser.parse_args()
    if options.detach is not None:
        _detach(options.detach)
        return
    pace = Pace(options.first_ms / 1e3, options.gap_ms / 1e3)
    uvloop.run(serve(options.port, pace, options.model, _costs(options)))


def _detach(pid_file: Path) -> None:
    """Start the same in the background, and say where it listens once it does."""
    at = sys.argv.index("--detach")
    command = [sys.executable, "-m", "bench.load.mock_backend", *sys.argv[1:at], *sys.argv[at + 2 :]]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert child.stdout is not None
    url = child.stdout.readline().decode().strip()
    if not url:
        raise SystemExit(f"it did not start: code {child.wait()}; is the port free?")
    pid_file.write_text(f"{child.pid}\n")
    print(url)


def _costs(options: argparse.Namespace) -> MockCosts | None:
    if options.step_ms is None:
        return None
    per = options.token_us / 1e6, options.request_us / 1e6
    return MockCosts(options.step_ms / 1e3, *per, options.chunk_tokens, options.max_running)


if __name__ == "__main__":
    main()
