"""ZMTP 3.1 as a relay needs it: cuts a stream of bytes into what may be passed on, lost or changed as a whole.

A connection begins with a greeting of 64 bytes, which goes on as it comes: each end waits for the other's first bytes
before it sends its last. Frames follow: a flags octet, a length of one octet or eight, a body. Commands (handshake,
heartbeats, subscriptions) are passed on as they are. A message is all frames up to one without `MORE`. Only for
connections without encryption: CURVE hides where messages end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GREETING_BYTES = 64
MORE, LONG, COMMAND = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Control:
    """Bytes that are none of a message: of the greeting, or a command."""

    data: bytes


Frames = tuple[bytes, ...]


class Reader:
    """Bytes of one direction in, whole controls and messages out, in order."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._greeting_left = GREETING_BYTES
        self._frames: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[Control | Frames]:
        self._buffer += data
        if self._greeting_left and self._buffer:
            greeting = self._take(min(self._greeting_left, len(self._buffer)))
            self._greeting_left -= len(greeting)
            yield Control(greeting)
        while (frame := self._frame()) is not None:
            flags, body = frame[0], frame[9 if frame[0] & LONG else 2 :]
            if flags & COMMAND:
                yield Control(frame)
                continue
            self._frames.append(body)
            if not flags & MORE:
                message, self._frames = tuple(self._frames), []
                yield message

    def _frame(self) -> bytes | None:
        """None: it is not all there."""
        buffer = self._buffer
        head = 9 if buffer and buffer[0] & LONG else 2
        if self._greeting_left or len(buffer) < head:
            return None
        size = head + int.from_bytes(buffer[1:head])
        return self._take(size) if len(buffer) >= size else None

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def encode(frames: Sequence[bytes]) -> bytes:
    """A message as it goes over the wire."""
    last = len(frames) - 1
    return b"".join(_frame(body, MORE if index < last else 0) for index, body in enumerate(frames))


def _frame(body: bytes, flags: int) -> bytes:
    if len(body) > 255:
        return bytes([flags | LONG]) + len(body).to_bytes(8) + body
    return bytes([flags, len(body)]) + body
