"""The bytes of a request's body as they arrive, and the checked `Body` that they hold."""

import asyncio
from functools import partial
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.types import Receive

from router.api.background import Background
from router.api.errors import ApiError, ClientGoneError, body_too_large
from router.api.http.admission import AdmissionEntry
from router.api.http.callers import caller_of
from router.api.http.eager import begin
from router.api.http.headers import headers_of
from router.api.openai.input.bodies import Body
from router.api.openai.input.parsing import LARGE_BODY, parse_body

BODY_TIMEOUT_S: Final = 30.0

B = TypeVar("B", bound=Body)


async def read_body(
    request: Request, kind: type[B], max_bytes: int, entry: AdmissionEntry, background: Background
) -> B:
    """Raise `ApiError`: too large (413), too slow (408), compressed (415), not JSON or not as ``kind`` wants it (400).

    Raise `Overloaded` if there is no room for it at the moment.
    """
    data = await read_bytes(request, max_bytes, entry)
    if len(data) <= LARGE_BODY:
        return parse_body(data, kind)
    return await background.run(caller_of(request.scope).tenant, partial(parse_body, data, kind))


async def read_bytes(request: Request, max_bytes: int, entry: AdmissionEntry) -> bytes:
    """Raise `ApiError` and `Overloaded` as `read_body` does, but for what is in it."""
    headers = headers_of(request.scope)
    coding = headers.get("content-encoding", "identity")
    if coding.strip().lower() != "identity":
        message = f"content-encoding: send bodies as they are, not as {coding[:32]!r}"
        raise ApiError(415, message, code="unsupported_encoding")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise body_too_large(max_bytes)
    pieces: list[bytes] = []
    left = begin(_read(request.receive, max_bytes, entry, pieces))
    if left is not None:  # most bodies are here with their heads
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                await left
        except TimeoutError:
            message = f"The body did not arrive within {BODY_TIMEOUT_S:g} s"
            raise ApiError(408, message, code="body_timeout", headers={"connection": "close"}) from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _read(receive: Receive, max_bytes: int, entry: AdmissionEntry, pieces: list[bytes]) -> None:
    """Counts what arrives, so that a chunked body without a length cannot grow past the limit."""
    num_bytes, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        piece = message.get("body", b"")
        entry.hold(len(piece))
        pieces.append(piece)
        num_bytes += len(piece)
        if num_bytes > max_bytes:
            raise body_too_large(max_bytes)
        more = message.get("more_body", False)
