"""The shapes of /v1/completions."""

from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from router.api.errors import ApiError
from router.api.openai.answers.call import Usage
from router.api.openai.answers.choice import Choice, Piece
from router.api.openai.answers.logprobs import CompletionLogprobs, JsonLists
from router.api.openai.answers.sse import ChunkTemplate, error_event
from router.api.openai.models import ServedModel

_encode = msgspec.json.encode


class _Logprobs:
    """Log-probabilities of all choices of a call."""

    def __init__(self, model: ServedModel) -> None:
        self._of: defaultdict[int, CompletionLogprobs] = defaultdict(lambda: CompletionLogprobs(model))

    def of(self, choice: Choice, piece: Piece) -> dict[str, object]:
        prompt = choice.prompt.tokens if piece.prompt_logprobs else ()
        return self._of[choice.index].add(prompt, piece.prompt_logprobs or (), piece.logprobs)


class CompletionEvents:
    """Chunks of a streamed completion."""

    def __init__(self, template: ChunkTemplate, model: ServedModel, logprobs: bool) -> None:
        self._template = template
        self._logprobs = _Logprobs(model) if logprobs else None

    def opening(self, choice: Choice) -> bytes:
        return b""

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        if not (piece.text or piece.finish or (self._logprobs and piece.logprobs)):
            return b""
        logprobs = _encode(self._logprobs.of(choice, piece)) if self._logprobs else b"null"
        return self._template.chunk(choice.index, b'"text":' + _encode(piece.text), logprobs, piece.finish)

    def usage(self, usage: Usage) -> bytes:
        return self._template.usage(usage)

    def error(self, error: ApiError) -> bytes:
        return error_event(error)


@dataclass(frozen=True, slots=True)
class CompletionAnswer:
    """A whole completion."""

    model: ServedModel
    logprobs: bool
    kind: str = field(default="text_completion")

    def part(self, choice: Choice) -> "_Part":
        return _Part(choice, _Logprobs(self.model) if self.logprobs else None)


class _Part:
    def __init__(self, choice: Choice, logprobs: _Logprobs | None) -> None:
        self._choice = choice
        self._logprobs = logprobs
        self._lists = JsonLists()
        self._texts: list[str] = []
        self.add(Piece("", None, ()))

    def add(self, piece: Piece) -> None:
        self._texts.append(piece.text)
        if self._logprobs is not None:
            self._lists.add(self._logprobs.of(self._choice, piece))

    def json(self) -> dict[str, object]:
        return {
            "index": self._choice.index,
            "text": "".join(self._texts),
            "logprobs": self._lists.json() if self._logprobs else None,
            "finish_reason": self._choice.finish,
        }
