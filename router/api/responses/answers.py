"""The shapes of /v1/responses: the response itself, and the events of a stream that builds it."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from mesh.wire.requests import FinishReason
from router.api.errors import ApiError
from router.api.openai.answers.call import Usage
from router.api.openai.answers.choice import Choice, Piece
from router.api.openai.answers.gathered_chat import GatheredChat
from router.api.openai.answers.sse import named_event
from router.api.openai.answers.stream import EventStream
from router.api.openai.chat.chat_calls import ChatCall
from router.api.responses.bodies import Item, ResponsesBody
from router.api.responses.output import Json, OutputBuilder
from router.chat.deltas import CallArguments, CallBegins, ContentDelta, Delta, ReasoningDelta

NOTHING: Final = Usage(0, 0, 0)


@dataclass(frozen=True, slots=True)
class ResponseShape:
    """What a response says whatever the answer. ``items``: of its input, those of earlier responses before its own."""

    chat: ChatCall
    body: ResponsesBody
    items: Sequence[Item]
    stores: bool
    created: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "created", self.chat.envelope.created)

    @property
    def id(self) -> str:
        return self.chat.envelope.id

    def builder(self) -> OutputBuilder:
        return OutputBuilder(self.chat.id.token, self._call_id)

    def _call_id(self, index: int) -> str:
        return self.chat.id.tool_call(0, index, self.chat.model.style.calls.call_id_length)

    def response(self, status: str, output: Sequence[Json], usage: Usage | None, **more: object) -> Json:
        body = self.body
        text = msgspec.to_builtins(body.text) if body.text else {}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": None,
            "model": self.chat.envelope.model,
            "output": list(output),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
            "service_tier": "default",
            "store": self.stores,
            "temperature": self._or(body.temperature, self.chat.model.temperature),
            "text": {"format": {"type": "text"}} | text,
            "tool_choice": body.tool_choice or "auto",
            "tools": [{"strict": None, "parameters": None, **tool} for tool in body.tools or ()],
            "top_logprobs": 0,
            "top_p": self._or(body.top_p, self.chat.model.top_p),
            "truncation": body.truncation or "disabled",
            "usage": None if usage is None else usage_json(usage),
            "user": body.user,
            "metadata": body.metadata or {},
            **more,
        }

    @staticmethod
    def _or(value: float | None, default: float) -> float:
        return default if value is None else value

    def ended(self, choice: Choice, output: Sequence[Json], usage: Usage) -> Json:
        """Return the response to an answer that has ended."""
        if choice.finish is FinishReason.LENGTH:
            details = {"reason": "max_output_tokens"}
            return self.response("incomplete", output, usage, incomplete_details=details)
        return self.response("completed", output, usage)

    def whole(self, said: GatheredChat, choice: Choice, usage: Usage) -> Json:
        builder = self.builder()
        for _ in builder.feed(list(_deltas(said))):
            pass
        for _ in builder.finish(is_whole=choice.finish is not FinishReason.LENGTH):
            pass
        return self.ended(choice, builder.items, usage)


def usage_json(usage: Usage) -> Json:
    return {
        "input_tokens": usage.num_prompt,
        "input_tokens_details": {"cached_tokens": usage.num_cached},
        "output_tokens": usage.num_completion,
        "output_tokens_details": {"reasoning_tokens": usage.num_reasoning or 0},
        "total_tokens": usage.num_tokens,
    }


def _deltas(said: GatheredChat) -> Iterable[Delta]:
    yield ReasoningDelta(said.reasoning)
    yield ContentDelta(said.content)
    for index, call in enumerate(said.calls):
        yield CallBegins(index, call.name)
        yield CallArguments(index, call.arguments)


class ResponseEvents:
    """The events of one stream, numbered from 0."""

    def __init__(self, shape: ResponseShape) -> None:
        self._shape = shape
        self._builder = shape.builder()
        self._number = 0

    def opening(self, choice: Choice) -> bytes:
        response = self._shape.response("in_progress", (), None)
        kinds = "response.created", "response.in_progress"
        return b"".join(self._write({"type": kind, "response": response}) for kind in kinds)

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        deltas = [ContentDelta(piece.text)] if piece.deltas is None else piece.deltas
        events = [self._write(event) for event in self._builder.feed(deltas)]
        if piece.finish is not None:
            ends = self._builder.finish(is_whole=piece.finish is not FinishReason.LENGTH)
            events += [self._write(event) for event in ends]
        return b"".join(events)

    def usage(self, usage: Usage) -> bytes:
        """`ResponseStream` ends with more than the usage."""
        return b""

    def error(self, error: ApiError) -> bytes:
        """Tell of the error, and of the response that has failed."""
        told = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        failure = {"code": "server_error", "message": error.message}
        response = self._shape.response("failed", self._builder.items, None, error=failure)
        return self._write(told) + self._write({"type": "response.failed", "response": response})

    def ended(self, choice: Choice, usage: Usage) -> Json:
        return self._shape.ended(choice, self._builder.items, usage)

    def last(self, response: Json) -> bytes:
        return self._write({"type": f"response.{response['status']}", "response": response})

    def _write(self, event: dict[str, Any]) -> bytes:
        number, self._number = self._number, self._number + 1
        return named_event(event["type"], {**event, "sequence_number": number})


class ResponseStream(EventStream):
    """Its last event has the response, which ``keep`` puts into the store before."""

    def __init__(self, shape: ResponseShape, keep: Callable[[Json], Awaitable[Json]]) -> None:
        self._response_events = ResponseEvents(shape)
        self._keep = keep
        super().__init__(shape.chat.call, self._response_events, done=b"")

    async def _last(self) -> bytes:
        response = self._response_events.ended(self._call.choices[0], self._call.usage)
        return self._response_events.last(await self._keep(response))
