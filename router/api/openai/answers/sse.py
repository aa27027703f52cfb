"""Chunks of a stream as bytes. What all of them share is encoded once: a token costs a join, not an encoder."""

from collections.abc import Mapping
from typing import Final

import msgspec

from mesh.wire.requests import FinishReason
from router.api.errors import ApiError
from router.api.openai.answers.call import Envelope, Usage

NOT_YET: Final = b"null"
TOOL_CALLS: Final = b'"tool_calls"'
_FINISH: Final[Mapping[FinishReason | bytes | None, bytes]] = {
    None: NOT_YET,
    TOOL_CALLS: TOOL_CALLS,
    **{reason: msgspec.json.encode(reason) for reason in FinishReason},
}


class ChunkTemplate:
    """Events of one stream. ``with_usage``: each chunk has the field, null until the last event."""

    def __init__(self, envelope: Envelope, kind: str, *, with_usage: bool) -> None:
        head = msgspec.json.encode(envelope.json(kind))[:-1]
        self._start = b"data: " + head + b',"choices":['
        self._tail = (b'}],"usage":null}' if with_usage else b"}]}") + b"\n\n"
        self._with_usage = with_usage
        self._heads: dict[int, bytes] = {}

    def chunk(self, index: int, content: bytes, logprobs: bytes, finish: FinishReason | bytes | None) -> bytes:
        """Write one event. ``content`` is the ``"delta":...`` or ``"text":...`` of the choice, ``logprobs`` a JSON
        value; ``finish`` may be `TOOL_CALLS`, too.
        """
        head = self._heads.get(index)
        if head is None:
            head = self._heads[index] = self._start + b'{"index":%d,' % index
        return b"".join((head, content, b',"logprobs":', logprobs, b',"finish_reason":', _FINISH[finish], self._tail))

    def usage(self, usage: Usage) -> bytes:
        """The event before the end; nothing if it was not asked for."""
        if not self._with_usage:
            return b""
        return self._start + b'],"usage":' + msgspec.json.encode(usage.json()) + b"}\n\n"


def error_event(error: ApiError) -> bytes:
    """Write an error as OpenAI's streams have it."""
    return b"data: " + error.body() + b"\n\n"


def message_error_event(error: ApiError) -> bytes:
    """Write an error as streams of Anthropic's messages have it."""
    return b"event: error\ndata: " + error.messages_body() + b"\n\n"


def named_event(name: str, body: object) -> bytes:
    """Write an event of the APIs whose events have names."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(body) + b"\n\n"
