"""The shapes of /v1/chat/completions."""

from dataclasses import dataclass

import msgspec

from router.api.openai.answers.call import Usage
from router.api.openai.answers.choice import Choice, Piece
from router.api.openai.answers.logprobs import JsonLists, chat_logprobs
from router.api.openai.answers.sse import ChunkTemplate
from router.api.openai.models import ServedModel

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

    def part(self, choice: Choice) -> "_Part":
        return _Part(choice, self.model, JsonLists() if self.logprobs else None)


class _Part:
    def __init__(self, choice: Choice, model: ServedModel, logprobs: JsonLists | None) -> None:
        self._choice = choice
        self._model = model
        self._logprobs = logprobs
        self._texts: list[str] = []
        self.add(Piece("", None, ()))

    def add(self, piece: Piece) -> None:
        self._texts.append(piece.text)
        if self._logprobs is not None:
            self._logprobs.add(chat_logprobs(self._model, piece.logprobs))

    def json(self) -> dict[str, object]:
        return {
            "index": self._choice.index,
            "message": {"role": "assistant", "content": "".join(self._texts), "refusal": None},
            "logprobs": self._logprobs.json() | {"refusal": None} if self._logprobs else None,
            "finish_reason": self._choice.finish,
        }
