"""Reads what servers say of errors, in answers that are errors and in those whose status says that they are none.

Some servers, and proxies before them, have said 200 before they find that they cannot answer: they send an object with
an ``error`` then, whole or as an event. It counts as the answer that it should have been.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from router.servers.stream.chunks import NOTHING, has_any
from router.servers.stream.sse import BadStreamError

MOST_REASON: Final = 300  # characters
UNNAMED: Final = 500  # the status of an error that does not say what kind it is
STATUSES: Final[Mapping[str, int]] = {  # of the types and codes of errors, without underscores and a last "error"
    "invalidrequest": 400, "badrequest": 400, "contextlengthexceeded": 400, "exceedcontextsize": 400,
    "authentication": 401, "invalidapikey": 401, "permission": 403, "permissiondenied": 403,
    "notfound": 404, "modelnotfound": 404, "requesttoolarge": 413, "unprocessableentity": 422,
    "ratelimit": 429, "ratelimitexceeded": 429, "insufficientquota": 429, "toomanyrequests": 429,
    "overloaded": 503, "unavailable": 503, "serviceunavailable": 503,
}  # fmt: skip


class ErrorEvent(BadStreamError):  # noqa: N818
    """An event of a stream is an error. ``status``: that the answer should have had."""

    def __init__(self, status: int, data: bytes) -> None:
        super().__init__(f"the server reports an error: {message_of(data)}")
        self.status = status
        self.data = data


class _Error(msgspec.Struct):
    error: str | dict[str, msgspec.Raw] | None = None
    message: str | None = None
    detail: str | None = None


class _Claimed(msgspec.Struct):
    """An answer, or an error in its place. vLLM's errors were objects called "error" once."""

    error: msgspec.Raw = NOTHING
    object: msgspec.Raw = NOTHING
    type: msgspec.Raw = NOTHING
    code: msgspec.Raw = NOTHING


def message_of(body: bytes) -> str:
    """Return what an error says, in one line."""
    try:
        found = msgspec.json.decode(body, type=_Error)
        inner = found.error.get("message") if isinstance(found.error, dict) else None
        text = msgspec.json.decode(inner, type=str) if inner is not None else found.message or found.detail
        text = text or (found.error if isinstance(found.error, str) else "")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = ""
    text = text or body[:200].decode(errors="replace")
    return " ".join(text.split())[:MOST_REASON] or "no reason given"


def misses_model(body: bytes) -> bool:
    """Return whether what an answer with 404 could not find is the model. Else it may be the path."""
    try:
        error = msgspec.json.decode(body, type=_Error).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    names = [error.get(name, NOTHING) for name in ("param", "code")] if isinstance(error, dict) else []
    return (
        any(bytes(name) in (b'"model"', b'"model_not_found"') for name in names) or "model" in message_of(body).lower()
    )


def status_within(body: bytes) -> int | None:
    """Return the status that an answer should have had, as it holds an error; None: it holds none."""
    if b'"error"' not in body:
        return None
    try:
        claimed = msgspec.json.decode(body, type=_Claimed)
        if has_any(claimed.error):
            inner = msgspec.json.decode(claimed.error)
        elif bytes(claimed.object) == b'"error"':
            inner = {"code": msgspec.json.decode(claimed.code), "type": msgspec.json.decode(claimed.type)}
        else:
            return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _status_of(inner) if isinstance(inner, dict) else UNNAMED


def _status_of(error: Mapping[str, object]) -> int:
    for name in ("code", "status", "type"):
        said = error.get(name)
        status = int(said) if isinstance(said, int) or (isinstance(said, str) and said.isdecimal()) else None
        if status is not None and 400 <= status <= 599:
            return status
        known = STATUSES.get(said.lower().replace("_", "").removesuffix("error")) if isinstance(said, str) else None
        if known is not None:
            return known
    return UNNAMED
