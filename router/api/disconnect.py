"""A client that goes away ends the work for it at once."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from router.api.errors import ClientGoneError

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; cancel it and raise `ClientGoneError` as soon as the client disconnects."""
    try:
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(work)
            watching = tasks.create_task(_disconnected(receive))
            working.add_done_callback(lambda _: watching.cancel())
            watching.add_done_callback(lambda _: working.cancel())
    except BaseExceptionGroup as group:
        raise first_of(group) from None
    if working.cancelled():
        raise ClientGoneError
    return working.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def first_of(error: BaseException) -> BaseException:
    """The first failure of a task group, which cancelled the others."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
