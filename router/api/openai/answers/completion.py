"""The shapes of /v1/completions."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from router.api.errors import ApiError
from router.api.openai.answers.call import Usage
from router.api.openai.answers.choice import Choice, Piece
from router.api.openai.answers.logprobs import CompletionLogprobs, JsonLists, PromptLogprobsById
from router.api.openai.answers.sse import ChunkTemplate, error_event
from router.api.openai.answers.whole import AnswerPart
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
    """A whole completion: of ``num_drawn`` answers to each prompt, the ``n`` best."""

    model: ServedModel
    logprobs: bool
    prompt_logprobs: bool
    n: int
    num_drawn: int
    kind: str = field(default="text_completion")

    def part(self, choice: Choice) -> "_Part":
        return _Part(choice, self.model, self.logprobs, self.prompt_logprobs)

    def json(self, parts: Sequence[AnswerPart]) -> dict[str, object]:
        kept = [part.json() for part in parts]
        if self.num_drawn > self.n:
            drawn = [parts[start : start + self.num_drawn] for start in range(0, len(parts), self.num_drawn)]
            kept = [part.json() for of_one in drawn for part in best_of(of_one, self.n)]
        return {"choices": [choice | {"index": index} for index, choice in enumerate(kept)]}


def best_of(parts: Sequence[AnswerPart], n: int) -> list[AnswerPart]:
    """Return the parts whose tokens are the likeliest on average, best first: OpenAI's rule."""
    return sorted(parts, key=lambda part: -part.mean_logprob)[:n]


class _Part:
    def __init__(self, choice: Choice, model: ServedModel, logprobs: bool, prompt_logprobs: bool) -> None:
        self._choice = choice
        self._logprobs = _Logprobs(model) if logprobs else None
        self._prompt = PromptLogprobsById(model) if prompt_logprobs else None
        self._lists = JsonLists()
        self._texts: list[str] = []
        self._sum = 0.0
        self._num_tokens = 0
        self.add(Piece("", None, ()))

    def add(self, piece: Piece) -> None:
        self._texts.append(piece.text)
        self._sum += sum([entry.logprob for entry in piece.logprobs])
        self._num_tokens += len(piece.logprobs)
        if self._logprobs is not None:
            self._lists.add(self._logprobs.of(self._choice, piece))
        if self._prompt is not None:
            self._prompt.add(piece.prompt_logprobs)

    @property
    def mean_logprob(self) -> float:
        return self._sum / max(1, self._num_tokens)

    def json(self) -> dict[str, object]:
        shown: dict[str, object] = {
            "index": self._choice.index,
            "text": "".join(self._texts),
            "logprobs": self._lists.json() if self._logprobs else None,
            "finish_reason": self._choice.finish,
        }
        return shown if self._prompt is None else shown | {"prompt_logprobs": self._prompt.json()}
