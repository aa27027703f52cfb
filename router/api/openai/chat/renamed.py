"""Names parameters of chats as the API calls them that a client spoke."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from router.api.errors import ApiError

_HEAD: Final = re.compile(r"[^.\[]*")


@contextmanager
def renaming(names: Mapping[str, str]) -> Iterator[None]:
    """Raise errors that name a parameter of chats with the name that it has here. ``names``: by the chat's own."""
    try:
        yield
    except ApiError as error:
        raise renamed(error, names) from None


def renamed(error: ApiError, names: Mapping[str, str]) -> ApiError:
    """Return the error with its parameter's other name. Of a renamed list, which entry it was is told of tools alone:
    messages are other ones than the client's.
    """
    head = _HEAD.match(error.param or "")
    name = None if head is None else names.get(head[0])
    if head is None or name is None or type(error) is not ApiError or error.param is None:
        return error
    if name == head[0] and "." not in error.param and "[" not in error.param:
        return error
    param = name + (error.param[head.end() :].replace(".function", "") if head[0] == "tools" else "")
    message = error.message
    if message.startswith(error.param):
        message = param + message.removeprefix(error.param)
    return ApiError(error.status, message, param=param, code=error.code, headers=error.headers)
