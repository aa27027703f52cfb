"""The shapes of /v1/completions."""

from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from router.api.call import Usage
from router.api.choice import Choice, Piece
from router.api.logprobs import CompletionLogprobs
from router.api.models import ServedModel
from router.api.sse import ChunkTemplate

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


@dataclass(frozen=True, slots=True)
class CompletionAnswer:
    """A whole completion."""

    model: ServedModel
    logprobs: bool
    kind: str = field(default="text_completion")

    def choice(self, choice: Choice, pieces: list[Piece]) -> dict[str, object]:
        return {
            "index": choice.index,
            "text": "".join(piece.text for piece in pieces),
            "logprobs": self._all_logprobs(choice, pieces) if self.logprobs else None,
            "finish_reason": choice.finish,
        }

    def _all_logprobs(self, choice: Choice, pieces: list[Piece]) -> dict[str, object]:
        joined = Piece(
            text="",
            finish=None,
            logprobs=tuple(entry for piece in pieces for entry in piece.logprobs),
            prompt_logprobs=next((piece.prompt_logprobs for piece in pieces if piece.prompt_logprobs), None),
        )
        return _Logprobs(self.model).of(choice, joined)
