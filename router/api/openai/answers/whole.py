"""An answer in one piece."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive

from router.api.http.disconnect import disconnected
from router.api.http.headers import route_headers
from router.api.openai.answers.call import Call, Envelope
from router.api.openai.answers.choice import Choice, Piece
from router.api.openai.answers.gathered_chat import GatheredChat


class WholeAnswer(Protocol):
    """One API's shape of a whole answer."""

    @property
    def kind(self) -> str: ...

    def part(self, choice: Choice) -> "AnswerPart": ...

    def json(self, parts: Sequence["AnswerPart"]) -> dict[str, object]:
        """Return what the parts make, beside envelope and usage."""


class AnswerPart(Protocol):
    """One choice of it, as far as it has come. Kept as text and JSON, a tenth of what the pieces themselves take."""

    @property
    def mean_logprob(self) -> float:
        """Return the mean log-probability of its tokens, where they were asked for."""

    def add(self, piece: Piece) -> None: ...

    def json(self) -> dict[str, object]: ...


class _Collector:
    def __init__(self, answer: WholeAnswer, call: Call) -> None:
        self.parts = {choice.index: answer.part(choice) for choice in call.choices}

    async def take(self, choice: Choice, piece: Piece, *, more: bool) -> None:
        add = self.parts[choice.index].add
        if piece.prompt_logprobs is None:
            add(piece)
        else:  # of thousands of tokens: their text takes long enough to hold up everybody's tokens
            await asyncio.to_thread(add, piece)


async def whole_response(call: Call, answer: WholeAnswer, envelope: Envelope, receive: Receive) -> Response:
    """Run the call to its end. Raise `ApiError` or `RouterError` if it fails."""
    collector = _Collector(answer, call)
    await call.run(collector, disconnected(receive))
    body = envelope.json(answer.kind) | answer.json(list(collector.parts.values())) | {"usage": call.usage.json()}
    return json_answer(call, body)


class _Listener:
    """Gathers what the one choice of a call says."""

    def __init__(self) -> None:
        self.said = GatheredChat()

    async def take(self, choice: Choice, piece: Piece, *, more: bool) -> None:
        self.said.add(piece)


async def said_of(call: Call, receive: Receive) -> GatheredChat:
    """Run a call with one choice to its end, and return what it says. Raise `ApiError` or `RouterError` if it fails."""
    listener = _Listener()
    await call.run(listener, disconnected(receive))
    return listener.said


def json_answer(call: Call, body: object) -> Response:
    """Answer a call that has ended, with headers that say where it ran."""
    headers = route_headers(call.route) if call.route else {}
    return Response(msgspec.json.encode(body), headers=headers, media_type="application/json")
