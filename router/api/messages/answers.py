"""The shapes of /v1/messages: whole answers, and the events of streams."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec

from mesh.wire.requests import FinishReason
from router.api.errors import ApiError
from router.api.openai.answers.call import Usage
from router.api.openai.answers.choice import Choice, Piece
from router.api.openai.answers.gathered_chat import GatheredChat
from router.api.openai.answers.sse import message_error_event, named_event
from router.api.openai.chat.chat_calls import ChatCall
from router.chat.deltas import CallArguments, CallBegins, ContentDelta, Delta, ReasoningDelta

PING: Final = named_event("ping", {"type": "ping"})

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MessageShape:
    """What messages of one answer are called, and whether they show what the model thinks."""

    id: str
    model: str
    chat: ChatCall
    shows_thinking: bool

    @classmethod
    def of(cls, chat: ChatCall) -> "MessageShape":
        return cls(chat.envelope.id, chat.envelope.model, chat, chat.body.include_reasoning is not False)

    def message(self, content: list[Json], usage: Usage, stop_reason: str | None, stop: str | None) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": stop,
            "usage": usage_json(usage),
        }

    def call_id(self, choice: Choice, index: int) -> str:
        name = self.chat.id.tool_call(choice.index, index, self.chat.model.style.calls.call_id_length)
        return name.replace("call_", "toolu_")

    def whole(self, said: GatheredChat, choice: Choice, usage: Usage) -> Json:
        return self.message(list(self._blocks(said, choice)), usage, stop_reason(choice), choice.stop)

    def _blocks(self, said: GatheredChat, choice: Choice) -> list[Json]:
        """A call that was cut off is left out: half of what it was to do is nothing that anybody should do."""
        blocks: list[Json] = []
        if said.reasoning and self.shows_thinking:
            signed = signature(said.reasoning)
            blocks.append({"type": "thinking", "thinking": said.reasoning, "signature": signed})
        if said.content:
            blocks.append({"type": "text", "text": said.content})
        for index, call in enumerate(said.calls):
            if (arguments := _object(call.arguments)) is not None:
                call_id = self.call_id(choice, index)
                blocks.append({"type": "tool_use", "id": call_id, "name": call.name, "input": arguments})
        return blocks


def usage_json(usage: Usage) -> Json:
    """Tokens of the prompt that were in a prefix cache are counted apart."""
    return {
        "input_tokens": usage.num_prompt - usage.num_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.num_cached,
        "output_tokens": usage.num_completion,
    }


def stop_reason(choice: Choice) -> str:
    if choice.finish is FinishReason.LENGTH:
        return "max_tokens"
    if choice.stop is not None:
        return "stop_sequence"
    return "tool_use" if choice.calls_tools else "end_turn"


def signature(thinking: str) -> str:
    """Nobody checks it: it only fills the field, and differs where the text does."""
    return blake2b(thinking.encode(errors="replace"), digest_size=16).hexdigest()


def _object(text: str) -> Json | None:
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class MessageEvents:
    """The events of one streamed message: blocks that begin, grow and end, one after the other."""

    def __init__(self, shape: MessageShape) -> None:
        self._shape = shape
        self._choice: Choice | None = None
        self._num_blocks = 0
        self._open = ""  # the kind of the block that grows
        self._thoughts: list[str] = []

    def opening(self, choice: Choice) -> bytes:
        self._choice = choice
        usage = Usage(len(choice.prompt.tokens), 0, choice.num_cached_tokens)
        return _event("message_start", message=self._shape.message([], usage, None, None)) + PING

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        deltas: list[Delta] = [ContentDelta(piece.text)] if piece.deltas is None else piece.deltas
        events = b"".join(self._delta(choice, delta) for delta in deltas)
        return events if piece.finish is None else events + self._close()

    def usage(self, usage: Usage) -> bytes:
        choice = self._choice
        assert choice is not None, "an answer has begun before it ends"
        ended = {"stop_reason": stop_reason(choice), "stop_sequence": choice.stop}
        return _event("message_delta", delta=ended, usage=usage_json(usage)) + _event("message_stop")

    def error(self, error: ApiError) -> bytes:
        return message_error_event(error)

    def _delta(self, choice: Choice, delta: Delta) -> bytes:
        match delta:
            case ContentDelta(text):
                begun = self._begin("text", {"type": "text", "text": ""}) if text else b""
                return begun + self._grow({"type": "text_delta", "text": text}) if text else b""
            case ReasoningDelta(text):
                if not self._shape.shows_thinking:
                    return b""
                begun = self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                self._thoughts.append(text)
                return begun + self._grow({"type": "thinking_delta", "thinking": text})
            case CallBegins(index, name):
                block = {"type": "tool_use", "id": self._shape.call_id(choice, index), "name": name, "input": {}}
                return self._begin(f"tool_use {index}", block)
            case CallArguments(_, text):
                return self._grow({"type": "input_json_delta", "partial_json": text})

    def _begin(self, kind: str, block: Json) -> bytes:
        """Begin a block of this kind, unless one is open."""
        if self._open == kind:
            return b""
        ended = self._close()
        self._open = kind
        return ended + _event("content_block_start", index=self._num_blocks, content_block=block)

    def _grow(self, delta: Json) -> bytes:
        return _event("content_block_delta", index=self._num_blocks, delta=delta)

    def _close(self) -> bytes:
        if not self._open:
            return b""
        signed = b""
        if self._open == "thinking":
            signed = self._grow({"type": "signature_delta", "signature": signature("".join(self._thoughts))})
            self._thoughts.clear()
        ended = _event("content_block_stop", index=self._num_blocks)
        self._open, self._num_blocks = "", self._num_blocks + 1
        return signed + ended


def _event(kind: str, **fields: object) -> bytes:
    return named_event(kind, {"type": kind, **fields})
