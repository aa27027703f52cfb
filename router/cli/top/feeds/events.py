"""Server-sent events of a feed, taken out of the bytes that come. Pure, and bounded."""

from collections.abc import Iterator
from typing import Final

MOST_BYTES: Final = 16 * 2**20  # of one event: a mesh of thousands of engines


class EventError(Exception):
    """What comes is no feed."""


class FeedEvents:
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the data of each event that is whole; comments have none. Raise `EventError` if one is too long."""
        self._buffer += data
        while (end := self._buffer.find(b"\n\n", self._searched)) >= 0:
            block = bytes(self._buffer[:end])
            del self._buffer[: end + 2]
            self._searched = 0
            if found := _data(block):
                yield found
        self._searched = max(0, len(self._buffer) - 1)
        if len(self._buffer) > MOST_BYTES:
            raise EventError(f"an event has more than {MOST_BYTES >> 20} MiB")


def _data(block: bytes) -> bytes:
    fields = (line.partition(b":") for line in block.split(b"\n"))
    return b"\n".join(value.removeprefix(b" ") for name, _, value in fields if name == b"data")
