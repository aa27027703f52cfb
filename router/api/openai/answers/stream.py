"""A streamed answer: server-sent events, written straight to ASGI.

Nothing is sent before the first piece: an error until then gets its own HTTP status, and the headers tell where the
request runs. An error after that is an event of the stream.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from router.api.errors import ApiError, ClientGoneError, api_error, internal_error
from router.api.http.disconnect import disconnected
from router.api.http.headers import route_headers
from router.api.openai.answers.call import Call, Usage
from router.api.openai.answers.choice import Choice, Piece
from router.generation import RouterError

DONE = b"data: [DONE]\n\n"
HEADERS = (
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    (b"content-type", b"text/event-stream; charset=utf-8"),
)
MAX_UNSENT = 65_536  # bytes of events that wait for more

log = structlog.get_logger()


class Events(Protocol):
    """The events of one API's stream, as bytes."""

    def opening(self, choice: Choice) -> bytes:
        """Return the events before a choice's first piece."""

    def piece(self, choice: Choice, piece: Piece) -> bytes: ...

    def usage(self, usage: Usage) -> bytes:
        """The event with the usage, or nothing if it was not asked for."""

    def error(self, error: ApiError) -> bytes:
        """Return the event that tells why the stream ends before the answer does."""


class EventStream(Response):
    """Runs a call and sends its pieces as they come."""

    def __init__(self, call: Call, events: Events, done: bytes = DONE) -> None:
        """Make the answer. ``done``: its last event."""
        self.status_code, self.background, self.raw_headers = 200, None, list(HEADERS)
        self._call = call
        self._events = events
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raise `ApiError` or `RouterError` if the call fails before its first piece."""
        sink = _EventSink(self, self._call, self._events, send, self._done)
        try:
            await self._call.run(sink, disconnected(receive))
            await sink.finish(await self._last())
        except (ApiError, RouterError) as error:
            if not sink.started:
                raise
            if not isinstance(error, ClientGoneError):
                await sink.finish(self._events.error(api_error(error)))
        except Exception:
            if not sink.started:
                raise
            log.exception("stream failed", request=self._call.request_id)
            await sink.finish(self._events.error(internal_error(self._call.request_id)))

    async def _last(self) -> bytes:
        """Return the events after the last piece."""
        return self._events.usage(self._call.usage)


def encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Encode headers as ASGI wants them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


class _EventSink:
    """Sends pieces that come together in one ASGI message: each message is a system call.

    ASGI's `send` holds us back when the client is slow.
    """

    def __init__(self, response: EventStream, call: Call, events: Events, send: Send, done: bytes) -> None:
        self._send = send
        self._done = done
        self.started = False
        self._response = response
        self._call = call
        self._events = events
        self._opening = asyncio.Lock()
        self._opened: set[int] = set()
        self._unsent = b""

    async def take(self, choice: Choice, piece: Piece, *, more: bool) -> None:
        is_first = choice.index not in self._opened
        opening = self._events.opening(choice) if is_first else b""
        if piece.prompt_logprobs is None:
            event = self._events.piece(choice, piece)
        else:  # of thousands of tokens: their text takes long enough to hold up everybody's tokens
            event = await asyncio.to_thread(self._events.piece, choice, piece)
        if is_first:
            self._opened.add(choice.index)
            event = opening + event
            await self._start()
        event = self._unsent + event
        self._unsent = event if more and len(event) < MAX_UNSENT else b""
        if event and not self._unsent:
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def _start(self) -> None:
        async with self._opening:
            if self.started:
                return
            if route := self._call.route:
                self._response.raw_headers += encoded(route_headers(route))
            await self._send({"type": "http.response.start", "status": 200, "headers": self._response.raw_headers})
            self.started = True

    async def finish(self, last: bytes) -> None:
        if not self.started:
            await self._start()
        await self._send({"type": "http.response.body", "body": self._unsent + last + self._done, "more_body": False})
