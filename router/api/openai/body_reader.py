"""Reads the bodies of requests to models: small ones at once, large ones beside the event loop."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.requests import Request

from router.api.background import Background
from router.api.http.admission import AdmissionEntry, BodyAdmission
from router.api.http.callers import caller_of
from router.api.openai.input.bodies import Body
from router.api.openai.input.parsing import LARGE_BODY, parse_body
from router.api.openai.input.reading import read_body, read_bytes

B = TypeVar("B", bound=Body)
T = TypeVar("T")


class BodyReader:
    """Reads all bodies of a gateway that have the same bound."""

    def __init__(self, admission: BodyAdmission, max_bytes: int, background: Background) -> None:
        self._admission = admission
        self._max_bytes = max_bytes
        self._background = background

    def enter(self, request: Request) -> AdmissionEntry:
        """Raise `Overloaded` if too many requests are entering."""
        return self._admission.enter(caller_of(request.scope).peer)

    async def read(self, request: Request, kind: type[B], entry: AdmissionEntry) -> B:
        """Raise `ApiError` and `Overloaded` as `read_body` does."""
        return await read_body(request, kind, self._max_bytes, entry, self._background)

    async def translated(
        self, request: Request, kind: type[B], entry: AdmissionEntry, translate: Callable[[B], T]
    ) -> T:
        """Return what ``translate`` makes of the body. Raise `ApiError` and `Overloaded` as `read_body` does."""
        data = await read_bytes(request, self._max_bytes, entry)
        return await self.aside(request, partial(_translated, data, kind, translate), is_long=len(data) > LARGE_BODY)

    async def aside(self, request: Request, work: Callable[[], T], *, is_long: bool) -> T:
        """Do work at once, or beside the event loop if it is long. Raise `Overloaded` if too much waits already."""
        return await self._background.run(caller_of(request.scope).tenant, work) if is_long else work()


def _translated(data: bytes, kind: type[B], translate: Callable[[B], T]) -> T:
    return translate(parse_body(data, kind))
