"""The shapes of /v1/chat/completions."""

from dataclasses import dataclass

import msgspec

from router.api.call import Usage
from router.api.choice import Choice, Piece
from router.api.logprobs import chat_logprobs
from router.api.models import ServedModel
from router.api.sse import ChunkTemplate

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class ChatEvents:
    """Chunks of a streamed chat completion."""

    template: ChunkTemplate
    model: ServedModel
    logprobs: bool

    def opening(self, choice: Choice) -> bytes:
        return self.template.chunk(choice.index, b'"delta":{"role":"assistant","content":""}', b"null", None)

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        if not (piece.text or piece.finish or (self.logprobs and piece.logprobs)):
            return b""
        logprobs = _encode(chat_logprobs(self.model, piece.logprobs)) if self.logprobs else b"null"
        delta = b'"delta":{"content":' + _encode(piece.text) + b"}"
        return self.template.chunk(choice.index, delta, logprobs, piece.finish)

    def usage(self, usage: Usage) -> bytes:
        return self.template.usage(usage)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """A whole chat completion."""

    model: ServedModel
    logprobs: bool
    kind: str = "chat.completion"

    def choice(self, choice: Choice, pieces: list[Piece]) -> dict[str, object]:
        entries = [entry for piece in pieces for entry in piece.logprobs]
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": "".join(piece.text for piece in pieces), "refusal": None},
            "logprobs": chat_logprobs(self.model, entries) if self.logprobs else None,
            "finish_reason": choice.finish,
        }
