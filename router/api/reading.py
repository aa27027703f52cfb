"""From the bytes of a request's body to a checked `Body`, or an error that names the parameter."""

import asyncio
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Receive

from router.api.bodies import SHAPES, Body
from router.api.errors import ApiError, ClientGoneError, bad_parameter, body_too_large
from router.api.headers import headers_of

BODY_TIMEOUT_S: Final = 30.0

B = TypeVar("B", bound=Body)


async def read_body(request: Request, kind: type[B], max_bytes: int) -> B:
    """Raise `ApiError`: too large (413), too slow (408), not JSON or not as ``kind`` wants it (400)."""
    declared = headers_of(request.scope).get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise body_too_large(max_bytes)
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            data = await _read(request.receive, max_bytes)
    except TimeoutError:
        message = f"The body did not arrive within {BODY_TIMEOUT_S:g} s"
        raise ApiError(408, message, code="body_timeout", headers={"connection": "close"}) from None
    return parse_body(data, kind)


async def _read(receive: Receive, max_bytes: int) -> bytes:
    """Counts what arrives, so that a chunked body without a length cannot grow past the limit."""
    data, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        data += message.get("body", b"")
        if len(data) > max_bytes:
            raise body_too_large(max_bytes)
        more = message.get("more_body", False)
    return bytes(data)


def parse_body(data: bytes, kind: type[B]) -> B:
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise _explain(error) from None


def _explain(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    kind, location = first["type"], first["loc"]
    if kind == "json_invalid":
        return ApiError(400, f"The body is not valid JSON: {first['msg']}", code="invalid_json")
    if not location:
        return ApiError(400, "The body must be a JSON object", code="invalid_json")
    param, has_shapes = _path(location)
    if kind == "missing":
        return bad_parameter(param, "is required", "missing_required_parameter")
    field = param.rpartition(".")[2]
    return bad_parameter(param, f"must be {SHAPES[field]}" if has_shapes and field in SHAPES else first["msg"])


def _path(location: tuple[Any, ...]) -> tuple[str, bool]:
    """``messages[0].content``, and whether the fault lies in one of the several shapes that the field can have."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part == "str" or "[" in part:
            return path, True
        else:
            path += f".{part}" if path else part
    return path, False
