"""The events of a streamed answer, as OpenAI's API and its extensions have them. Other fields are skipped."""

from typing import Any

import msgspec

DONE = b"[DONE]"


class Details(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None


class Delta(msgspec.Struct):
    """A part of a chat's answer: content, or what a model thinks, refuses or calls instead."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.content or self.reasoning_content or self.reasoning or self.refusal or self.tool_calls)


class ChunkChoice(msgspec.Struct):
    index: int = 0
    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None

    @property
    def has_output(self) -> bool:
        return bool(self.text) or (self.delta is not None and not self.delta.is_empty)

    @property
    def words(self) -> str:
        """What it adds to the text of the answer."""
        content = self.delta.content if self.delta else None
        return self.text or (content if isinstance(content, str) else "")


class Chunk(msgspec.Struct):
    choices: list[ChunkChoice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None


_decoder = msgspec.json.Decoder(Chunk)


def read_chunk(data: bytes) -> Chunk:
    """Raise `ValueError` if it is no chunk of an answer."""
    return _decoder.decode(data)


def error_of(chunk: Chunk) -> str | None:
    """What the server says went wrong, in OpenAI's shape or in vLLM's."""
    if isinstance(chunk.error, dict):
        return str(chunk.error.get("message", chunk.error))
    if chunk.error is not None:
        return str(chunk.error)
    return str(chunk.message) if chunk.object == "error" else None


def error_of_body(body: bytes) -> str:
    """The words of a refusal: its message if it is in a known shape, else how it begins."""
    try:
        found = error_of(_decoder.decode(body))
    except ValueError:
        found = None
    return " ".join((found or body[:200].decode(errors="replace")).split())
