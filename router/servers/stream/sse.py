"""Reads server-sent events out of bytes as they arrive, whatever is cut where. No event may grow beyond a bound."""

from typing import Final

MAX_EVENT: Final = 2 * 2**20  # bytes
DONE: Final = b"[DONE]"


class BadStreamError(Exception):
    """What came is no stream of events, or not one that may be held. The text says what is wrong."""


class EventReader:
    """Cuts a stream into its events. Feed what arrives; events come without the blank line that ends them."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Raise `BadStreamError` if an event is too long."""
        if self._rest:
            data = self._rest + data
        if b"\r" in data:
            data = _plain(data)
        *events, self._rest = data.split(b"\n\n")
        if len(data) > MAX_EVENT and any(len(event) > MAX_EVENT for event in (*events, self._rest)):
            raise BadStreamError(f"an event has more than {MAX_EVENT} bytes")
        return [event for event in events if event]

    def end(self) -> list[bytes]:
        """Return what the end of the stream ends: some servers leave out the last blank line."""
        rest, self._rest = self._rest.strip(b"\r\n"), b""
        return [rest] if rest else []


def _plain(data: bytes) -> bytes:
    """With line feeds alone. What follows the last carriage return may be a line feed that has not come."""
    kept = b"\r" if data.endswith(b"\r") else b""
    return data.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n") + kept


def data_of(event: bytes) -> bytes:
    """Return what an event carries; nothing for comments and for events that have a name only."""
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)
