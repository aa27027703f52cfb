"""Server-sent events, however reads cut their stream (WHATWG HTML, section 9.2.6)."""


class EventSplitter:
    """Bytes in, the data of whole events out."""

    def __init__(self) -> None:
        self._rest = b""  # of a line whose end is not here yet
        self._data: list[bytes] = []  # of an event whose end is not here yet

    def feed(self, received: bytes) -> list[bytes]:
        """The data of each event that ends in ``received``. Names, ids and comments of events are dropped."""
        buffer = self._rest + received
        cut = max(buffer.rfind(b"\n"), buffer.rfind(b"\r", 0, len(buffer) - 1)) + 1  # a last \r may begin a \r\n
        self._rest = buffer[cut:]
        events = []
        for line in buffer[:cut].splitlines():
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events

    def finish(self) -> list[bytes]:
        """What was left when the stream ended. The standard drops an event without an empty line; servers forget it."""
        return self.feed(b"\n\n")
