"""A client that goes away, or stops reading, ends the work for it at once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from starlette.types import Message, Receive, Send

from router.api.errors import ClientGoneError

SEND_TIMEOUT_S: Final = 30.0

T = TypeVar("T")


Gone = Callable[[], Awaitable[None]]  # returns when nobody wants the answer any more


async def run_until(work: Coroutine[Any, Any, T], gone: Gone) -> T:
    """The result of ``work``; as soon as ``gone`` returns, cancel it and raise `ClientGoneError`."""
    is_done = False

    async def watch() -> None:
        await gone()
        if not is_done:
            raise ClientGoneError  # cancels the work

    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch())
            try:
                result = await work
            finally:
                is_done = True
                watching.cancel()
    except BaseExceptionGroup as group:
        raise first_of(group) from None
    return result


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
