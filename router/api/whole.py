"""An answer in one piece."""

from collections import defaultdict
from typing import Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive

from router.api.call import Call, Envelope
from router.api.choice import Choice, Piece
from router.api.disconnect import disconnected
from router.api.headers import placement_headers


class Answer(Protocol):
    """One API's shape of a whole answer."""

    @property
    def kind(self) -> str: ...

    def choice(self, choice: Choice, pieces: list[Piece]) -> dict[str, object]: ...


class _Collector:
    def __init__(self) -> None:
        self.pieces: defaultdict[int, list[Piece]] = defaultdict(list)

    async def take(self, choice: Choice, piece: Piece, *, more: bool) -> None:
        self.pieces[choice.index].append(piece)


async def whole_response(call: Call, answer: Answer, envelope: Envelope, receive: Receive) -> Response:
    """Run the call to its end. Raise `ApiError` or `RouterError` if it fails."""
    collector = _Collector()
    await call.run(collector, disconnected(receive))
    body = envelope.json(answer.kind) | {
        "choices": [answer.choice(choice, collector.pieces[choice.index]) for choice in call.choices],
        "usage": call.usage.json(),
    }
    headers = placement_headers(call.placement) if call.placement else {}
    return Response(msgspec.json.encode(body), headers=headers, media_type="application/json")
