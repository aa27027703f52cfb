"""One request and its answer, as uvicorn has them. The head of an answer is checked and written as a whole."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

CLOSE: Final = b"connection: close\r\n"
CHUNKED: Final = b"transfer-encoding: chunked\r\n"
BODYLESS: Final = (204, 304)  # statuses whose answers have no body
FRAMING: Final = frozenset({b"connection", b"content-length", b"transfer-encoding"})


class HeadFirstCycle(RequestResponseCycle):
    """Takes ASGI's messages as uvicorn's does, with less to do for a head of a dozen headers and for each event."""

    async def send(self, message: Any) -> None:
        """Raise `RuntimeError` for a message out of turn, or a header that HTTP does not allow."""
        if self.response_started and not self.chunked_encoding:
            await super().send(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self._begin(message)
        elif self.response_complete or message["type"] != "http.response.body":
            raise RuntimeError(f"{message['type']!r} comes out of turn")
        else:
            self._write_chunk(message.get("body", b""), is_last=not message.get("more_body", False))

    def _begin(self, message: Any) -> None:
        if message["type"] != "http.response.start":
            raise RuntimeError(f"{message['type']!r} comes before the head of the answer")
        self.response_started, self.waiting_for_100_continue = True, False
        status, headers = message["status"], [*self.default_headers, *message.get("headers", ())]
        _check(headers)
        lines, framing = [STATUS_LINE[status]], dict[bytes, bytes]()
        for given, value in headers:
            name = given.lower()
            lines += (name, b": ", value, b"\r\n")
            if name in FRAMING:
                framing[name] = value
        lines += (*self._frame(framing, status), b"\r\n")
        self.transport.write(b"".join(lines))

    def _frame(self, given: Mapping[bytes, bytes], status: int) -> list[bytes]:
        """Settle how the ends of the body and of the connection are told. Return what the headers do not say of it."""
        lines = []
        closes = b"close" in [word.strip() for word in given.get(b"connection", b"").lower().split(b",")]
        if not self.keep_alive and not closes:
            lines.append(CLOSE)
        self.keep_alive = self.keep_alive and not closes
        has_body = self.scope["method"] != "HEAD" and status not in BODYLESS
        if b"content-length" in given:
            self.expected_content_length, self.chunked_encoding = int(given[b"content-length"]), False
        elif has_body:
            self.chunked_encoding = True
            if b"transfer-encoding" not in given:
                lines.append(CHUNKED)
        return lines

    def _write_chunk(self, body: bytes, *, is_last: bool) -> None:
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        if is_last:
            chunk += b"0\r\n\r\n"
        if chunk:
            self.transport.write(chunk)
        if is_last:
            self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def _check(headers: Sequence[tuple[bytes, bytes]]) -> None:
    names, values = zip(*headers, strict=True) if headers else ((), ())
    if HEADER_RE.search(b"".join(names)) or HEADER_VALUE_RE.search(b"".join(values)):
        raise RuntimeError("a header of the answer has a character that HTTP does not allow")
