"""Reads bodies that are translated to chats: small ones at once, large ones beside the event loop."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.requests import Request

from router.api.http.admission import AdmissionEntry, BodyAdmission
from router.api.http.callers import caller_of
from router.api.openai.input.background import Background
from router.api.openai.input.bodies import Body
from router.api.openai.input.parsing import LARGE_BODY, parse_body
from router.api.openai.input.reading import read_bytes

B = TypeVar("B", bound=Body)
T = TypeVar("T")


class BodyReader:
    """Reads the bodies of one kind of API."""

    def __init__(self, admission: BodyAdmission, max_bytes: int, background: Background) -> None:
        self._admission = admission
        self._max_bytes = max_bytes
        self._background = background

    def enter(self, request: Request) -> AdmissionEntry:
        """Raise `Overloaded` if too many requests are entering."""
        return self._admission.enter(caller_of(request.scope).peer)

    async def read(self, request: Request, kind: type[B], entry: AdmissionEntry, translate: Callable[[B], T]) -> T:
        """Return what ``translate`` makes of the body. Raise `ApiError` and `Overloaded` as `read_body` does."""
        data = await read_bytes(request, self._max_bytes, entry)
        work = partial(_translated, data, kind, translate)
        return work() if len(data) <= LARGE_BODY else await self._background.run(caller_of(request.scope).tenant, work)


def _translated(data: bytes, kind: type[B], translate: Callable[[B], T]) -> T:
    return translate(parse_body(data, kind))
