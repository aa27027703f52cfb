"""Answers of servers on their way to the client: streams of their own events, and whole ones as they came."""

from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive

from mesh.wire.requests import FinishReason
from router.api.errors import MESSAGES_PATH, ApiError
from router.api.http.disconnect import disconnected
from router.api.http.headers import route_headers
from router.api.openai.answers.call import Call, Usage
from router.api.openai.answers.choice import Choice, Piece, Prompt
from router.api.openai.answers.sse import error_event, message_error_event
from router.api.openai.answers.stream import DONE, EventStream, encoded
from router.generation import Generation, RouterError, TokenBatch
from router.servers.forwarded_call import AnswerForm, ForwardedCall, ForwardedCalls, ServerAnswer

NOTHING: Final = Piece("", None, ())
ENDS: Final = {finish: Piece("", finish, ()) for finish in FinishReason}


class ServerAnswered(ApiError):  # noqa: N818
    """The server itself has answered, with an error that is the client's to read."""

    def __init__(self, answer: ServerAnswer) -> None:
        super().__init__(answer.status, "the server refused it", code="server_refused", headers=dict(answer.headers))
        self._body = answer.body

    def body(self) -> bytes:
        return self._body

    def messages_body(self) -> bytes:
        return self._body


class ForwardedChoice(Choice):
    """The answer to one call, whose text is in the server's own events."""

    def __init__(self, generation: Generation, prompt: list[int], call: ForwardedCall) -> None:
        self.index = 0
        self.generation = generation
        self.prompt = Prompt(prompt)
        self.num_tokens = self.num_cached_tokens = 0
        self.finish: FinishReason | None = None
        self.call: Final = call

    def feed(self, batch: TokenBatch) -> Piece:
        self.num_tokens += len(batch.tokens)
        self.num_cached_tokens = batch.num_cached_tokens or self.num_cached_tokens
        if batch.finish is None:
            return NOTHING
        self.finish = batch.finish
        return ENDS[batch.finish]


class ForwardingCall(Call, frozen=True, kw_only=True):
    """A call whose one choice a server answers. It is in ``calls`` while it runs."""

    choice: ForwardedChoice
    calls: ForwardedCalls

    @property
    def usage(self) -> Usage:
        """As the server counted, where it told."""
        counted, choice = self.choice.call.usage, self.choice
        if counted is None or counted.prompt_tokens is None:
            return Usage(len(choice.prompt.tokens), choice.num_tokens, choice.num_cached_tokens)
        return Usage(counted.prompt_tokens, counted.completion_tokens or choice.num_tokens, counted.num_cached)

    async def run(self, sink: Any, gone: Any) -> None:
        """As any call; then nobody asks for it any more."""
        try:
            await Call.run(self, sink, gone)
        finally:
            self.calls.remove(self.choice.call.id)

    def _failure(self, error: ApiError | RouterError) -> ApiError | RouterError:
        """Let the client have the server's own word, unless its answer has begun."""
        answer = self.choice.call.answer
        return error if answer is None or answer.status < 400 else ServerAnswered(answer)


class ForwardedEvents:
    """The server's own events."""

    def __init__(self, call: ForwardedCall) -> None:
        self._call = call

    def opening(self, choice: Choice) -> bytes:
        return b""

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        return self._call.take(choice.num_tokens)

    def usage(self, usage: Usage) -> bytes:
        """Return what came after the last token."""
        return self._call.take(self._call.num_tokens)

    def error(self, error: ApiError) -> bytes:
        if self._call.body.path.startswith(MESSAGES_PATH):
            return message_error_event(error)
        return error_event(error)


def forwarded_stream(call: ForwardingCall) -> EventStream:
    forwarded = call.choice.call
    done = DONE if forwarded.body.form is AnswerForm.CHUNKS else b""
    return EventStream(call, ForwardedEvents(forwarded), done)


class _Nowhere:
    """Takes the pieces of an answer that comes whole."""

    async def take(self, choice: Choice, piece: Piece, *, more: bool) -> None: ...


async def forwarded_whole(call: ForwardingCall, receive: Receive) -> Response:
    """Run the call to its end. Raise `ApiError` or `RouterError` if it fails."""
    await call.run(_Nowhere(), disconnected(receive))
    answer = call.choice.call.answer
    assert answer is not None, "it ended, and in one piece"
    response = Response(answer.body, status_code=answer.status)
    response.raw_headers += encoded(dict(answer.headers) | (route_headers(call.route) if call.route else {}))
    return response
