"""The frames around every message: version, topic, and who sends."""

import re
from typing import NamedTuple

WIRE_VERSION = b"ms1"
TOPIC_STATUS = b"status"
TOPIC_TAP = b"tap"
TOPIC_ANSWER = b"answer:"  # and who has asked
MAX_SENDER_BYTES = 256
_SENDER = re.compile(rb"([A-Za-z0-9_.-]+~?)@([0-9]{1,18})")


class WireError(ValueError):
    """A frame that is not ours, of another version, or malformed. The message says which."""


class Sender(NamedTuple):
    """Who sent a message: the process and the incarnation of it that did."""

    process: str
    incarnation: int

    def encode(self) -> bytes:
        return f"{self.process}@{self.incarnation}".encode()

    @classmethod
    def decode(cls, frame: bytes) -> "Sender":
        """Raise `WireError` unless it names a process, in ASCII, and a number that fits 64 bits."""
        match = _SENDER.fullmatch(frame) if len(frame) <= MAX_SENDER_BYTES else None
        if match is None:
            raise WireError(f"bad sender frame {frame[:64]!r}: want process@incarnation")
        return cls(match[1].decode(), int(match[2]))
