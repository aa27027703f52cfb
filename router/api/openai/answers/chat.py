"""The shapes of /v1/chat/completions."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from mesh.wire.requests import FinishReason
from router.api.errors import ApiError
from router.api.openai.answers.call import Usage
from router.api.openai.answers.choice import Choice, Piece
from router.api.openai.answers.gathered_chat import GatheredChat
from router.api.openai.answers.logprobs import JsonLists, PromptLogprobsById, chat_logprobs
from router.api.openai.answers.sse import TOOL_CALLS, ChunkTemplate, error_event
from router.api.openai.answers.whole import AnswerPart
from router.api.openai.input.ids import CallId
from router.api.openai.models import ServedModel
from router.chat.deltas import CallArguments, CallBegins, ContentDelta, Delta, ReasoningDelta

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Shows:
    """What the client wants to see, and what calls of tools are named by."""

    logprobs: bool
    reasoning: bool
    id: CallId
    call_id_length: int
    prompt_logprobs: bool = False

    def call_id(self, choice: Choice, index: int) -> str:
        return self.id.tool_call(choice.index, index, self.call_id_length)


@dataclass(frozen=True, slots=True)
class ChatEvents:
    """Chunks of a streamed chat completion."""

    template: ChunkTemplate
    model: ServedModel
    shows: Shows

    def opening(self, choice: Choice) -> bytes:
        return self.template.chunk(choice.index, b'"delta":{"role":"assistant","content":""}', b"null", None)

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        if piece.deltas is not None:
            return self._parts(choice, piece, piece.deltas)
        wants_logprobs = self.shows.logprobs
        if not (piece.text or piece.finish or (wants_logprobs and piece.logprobs)):
            return b""
        delta = b'"delta":{"content":' + _encode(piece.text) + b"}"
        logprobs = self._logprobs(piece) if wants_logprobs else b"null"
        return self.template.chunk(choice.index, delta, logprobs, piece.finish)

    def usage(self, usage: Usage) -> bytes:
        return self.template.usage(usage)

    def error(self, error: ApiError) -> bytes:
        return error_event(error)

    def _logprobs(self, piece: Piece) -> bytes:
        return _encode(chat_logprobs(self.model, piece.logprobs)) if self.shows.logprobs else b"null"

    def _parts(self, choice: Choice, piece: Piece, deltas: list[Delta]) -> bytes:
        """One event a part. The last one has the log-probabilities of all, and the end."""
        shown = [delta for delta in deltas if self.shows.reasoning or not isinstance(delta, ReasoningDelta)]
        parts = [b'"delta":' + _encode(self._delta(choice, delta)) for delta in shown]
        if not parts:
            if piece.finish is None and not (self.shows.logprobs and piece.logprobs):
                return b""
            parts = [b'"delta":{}']
        *first, last = parts
        events = [self.template.chunk(choice.index, part, b"null", None) for part in first]
        finish = TOOL_CALLS if piece.finish is FinishReason.STOP and choice.calls_tools else piece.finish
        return b"".join((*events, self.template.chunk(choice.index, last, self._logprobs(piece), finish)))

    def _delta(self, choice: Choice, delta: Delta) -> dict[str, object]:
        match delta:
            case ContentDelta(text):
                return {"content": text}
            case ReasoningDelta(text):
                return {"reasoning_content": text}
            case CallBegins(index, name):
                function = {"name": name, "arguments": ""}
                call_id = self.shows.call_id(choice, index)
                return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
            case CallArguments(index, text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """A whole chat completion."""

    model: ServedModel
    shows: Shows
    kind: str = "chat.completion"

    def part(self, choice: Choice) -> "_Part":
        return _Part(choice, self.model, self.shows)

    def json(self, parts: Sequence[AnswerPart]) -> dict[str, object]:
        """The prompt's log-probabilities belong to the whole, as in vLLM: all choices have one prompt."""
        choices: dict[str, object] = {"choices": [part.json() for part in parts]}
        first = parts[0]
        if isinstance(first, _Part) and first.prompt is not None:
            choices["prompt_logprobs"] = first.prompt.json()
        return choices


class _Part:
    def __init__(self, choice: Choice, model: ServedModel, shows: Shows) -> None:
        self._choice = choice
        self._model = model
        self._shows = shows
        self._logprobs = JsonLists() if shows.logprobs else None
        self.prompt = PromptLogprobsById(model) if shows.prompt_logprobs else None
        self._said = GatheredChat()
        self.add(Piece("", None, ()))

    def add(self, piece: Piece) -> None:
        self._said.add(piece)
        if self._logprobs is not None:
            self._logprobs.add(chat_logprobs(self._model, piece.logprobs))
        if self.prompt is not None:
            self.prompt.add(piece.prompt_logprobs)

    @property
    def mean_logprob(self) -> float:
        return 0.0  # nobody ranks the answers to a chat

    def json(self) -> dict[str, object]:
        finish = self._choice.finish
        is_call = finish is FinishReason.STOP and bool(self._said.calls)
        return {
            "index": self._choice.index,
            "message": self._message(),
            "logprobs": self._logprobs.json() | {"refusal": None} if self._logprobs else None,
            "finish_reason": "tool_calls" if is_call else finish,
        }

    def _message(self) -> dict[str, object]:
        said = self._said
        message: dict[str, object] = {"role": "assistant", "content": said.content, "refusal": None}
        if said.calls:
            message["content"] = said.content or None
            message["tool_calls"] = [
                {
                    "id": self._shows.call_id(self._choice, index),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for index, call in enumerate(said.calls)
            ]
        if self._shows.reasoning and said.reasoning:
            message["reasoning_content"] = said.reasoning
        return message
