"""A client that goes away, or stops reading, ends the work for it at once."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from starlette.types import Message, Receive, Send

from router.api.errors import ClientGoneError

SEND_TIMEOUT_S: Final = 30.0

T = TypeVar("T")


async def run_until(work: Coroutine[Any, Any, T], gone: Coroutine[Any, Any, None]) -> T:
    """The result of ``work``; as soon as ``gone`` returns, cancel it and raise `ClientGoneError`.

    The work is a task of its own: whatever wakes it need not pass through all those that wait for its result.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            working, watching = tasks.create_task(work), tasks.create_task(gone)
            watching.add_done_callback(lambda _: working.cancel())
            working.add_done_callback(lambda _: watching.cancel())
    except BaseExceptionGroup as group:
        raise first_of(group) from None
    if working.cancelled():
        raise ClientGoneError
    return working.result()


def first_of(error: BaseException) -> BaseException:
    """The first failure of a task group, which cancelled the others."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def disconnected(receive: Receive) -> None:
    """Return when the client has closed its connection. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Outlet:
    """ASGI's ``send``, which waits for a slow client, with an eye on how long."""

    __slots__ = ("_num_done", "_num_started", "_send")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._num_started = 0
        self._num_done = 0

    async def send(self, message: Message) -> None:
        self._num_started += 1
        await self._send(message)
        self._num_done += 1

    async def abandoned(self, receive: Receive, limit_s: float = SEND_TIMEOUT_S) -> None:
        """Return when the client has closed its connection, or a message has been waiting to leave for ``limit_s``.

        The latter is noticed after twice that at the latest.
        """
        while True:
            num_before, was_sending = self._num_started, self._num_started > self._num_done
            try:
                async with asyncio.timeout(limit_s):
                    await disconnected(receive)
                return
            except TimeoutError:
                if was_sending and self._num_done < num_before:
                    return
