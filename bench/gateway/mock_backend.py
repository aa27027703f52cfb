"""A server with the OpenAI API that computes nothing: each token comes at its time, whatever the load.

    python -m bench.gateway.mock_backend [--port P] [--first-ms MS] [--gap-ms MS] [--model NAME]

The first token comes ``first-ms`` after the request, each later one ``gap-ms`` after the one before: what clients and
proxies measure or cost can be held against that. Answers have as many tokens as they are asked for, each an event of
its own that is written on its own.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import cast

import httptools
import uvloop

from bench.harness.arguments import script_parser

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKENS = 16  # where a request does not say


@dataclass(frozen=True, slots=True)
class Pace:
    first_s: float
    gap_s: float


class Exchanges(asyncio.Protocol):
    """One connection. httptools calls the methods that begin with ``on_``."""

    def __init__(self, pace: Pace, model: str) -> None:
        self._pace, self._model = pace, model
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
            self._stream = asyncio.create_task(self._answer(asked, is_chat=path.endswith(b"/chat/completions")))
        elif path == b"/v1/models":
            self._transport.write(_whole({"object": "list", "data": [{"id": self._model, "object": "model"}]}))
        elif path == b"/health":
            self._transport.write(_whole({}))
        else:
            self._transport.write(_whole({"error": {"message": "not here"}}, b"404 Not Found"))

    async def _answer(self, asked: dict[str, object], *, is_chat: bool) -> None:
        assert self._transport is not None
        began, pace = time.monotonic(), self._pace
        number = int(str(asked.get("max_tokens") or asked.get("max_completion_tokens") or TOKENS))
        usage = {"completion_tokens": number}
        if isinstance(prompt := asked.get("prompt"), list):
            usage["prompt_tokens"] = len(prompt)
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
        for index in range(number):
            await asyncio.sleep(max(0.0, began + pace.first_s + index * pace.gap_s - time.monotonic()))
            self._transport.write(HEAD + event if index == 0 else event)
        last = _event({**chunk, "choices": [], "usage": usage})
        self._transport.write(last + _chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def _event(chunk: dict[str, object]) -> bytes:
    return _chunked(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _whole(body: object, status: bytes = b"200 OK") -> bytes:
    data = json.dumps(body).encode()
    return b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (status, len(data), data)


async def serve(port: int, pace: Pace, model: str) -> None:
    """Until it is cancelled."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Exchanges(pace, model), "127.0.0.1", port)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = script_parser("bench.gateway.mock_backend", __doc__)
    parser.add_argument("--port", type=int, default=0, help="(default: a free one, which it prints)")
    parser.add_argument("--first-ms", type=float, default=0.0, metavar="MS", help="to the first token (default: 0)")
    parser.add_argument("--gap-ms", type=float, default=0.0, metavar="MS", help="between tokens (default: 0)")
    parser.add_argument("--model", default="mock", metavar="NAME")
    options = parser.parse_args()
    uvloop.run(serve(options.port, Pace(options.first_ms / 1e3, options.gap_ms / 1e3), options.model))


if __name__ == "__main__":
    main()
