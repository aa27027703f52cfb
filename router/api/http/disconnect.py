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

    The work is a task of its own: whatever wakes it need not pass through all those that wait for its result. The task
    that calls waits in ``gone`` itself, out of which it is called by its own cancellation once the work is done: a task
    group with a second task takes three times as long.
    """
    watch = TaskWatch()
    working = asyncio.get_running_loop().create_task(work)
    working.add_done_callback(watch.call_back)
    try:
        await watch.wait(gone)
    finally:
        if not working.done():
            working.cancel()
            await asyncio.wait((working,))
    if working.cancelled():
        raise ClientGoneError
    try:
        return working.result()
    except BaseExceptionGroup as group:
        raise first_of(group) from None


class TaskWatch:
    """Calls the task that makes it out of what it waits for."""

    __slots__ = ("_caller", "_has_called", "_is_over")

    def __init__(self) -> None:
        self._caller = asyncio.current_task()
        self._has_called = self._is_over = False

    def call_back(self, _: object = None) -> None:
        """Let `wait` return, now or as soon as it is called. Later than that it does nothing, nor a second time."""
        if not self._is_over and not self._has_called and self._caller is not None:
            self._has_called = True
            self._caller.cancel()

    async def wait(self, gone: Coroutine[Any, Any, None]) -> None:
        """Return when ``gone`` does, or when the task is called back."""
        try:
            await gone
        except asyncio.CancelledError:
            if not self._ends():
                raise
        finally:
            self._is_over = True

    def _ends(self) -> bool:
        """Say whether that was its only cancellation, which is taken back."""
        return self._has_called and self._caller is not None and self._caller.uncancel() == 0


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

    __slots__ = ("_num_before", "_num_done", "_num_started", "_send", "_timer", "_was_sending")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._num_started = 0
        self._num_done = 0
        self._num_before = 0  # as of the last look
        self._was_sending = False
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, message: Message) -> None:
        self._num_started += 1
        await self._send(message)
        self._num_done += 1

    async def abandoned(self, receive: Receive, limit_s: float = SEND_TIMEOUT_S) -> None:
        """Return when the client has closed its connection, or a message has been waiting to leave for ``limit_s``.

        The latter is noticed after twice that at the latest.
        """
        watch = TaskWatch()
        self._look_again(watch, limit_s)
        try:
            await watch.wait(disconnected(receive))
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _look_again(self, watch: TaskWatch, limit_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(limit_s, self._look, watch, limit_s)

    def _look(self, watch: TaskWatch, limit_s: float) -> None:
        if self._was_sending and self._num_done < self._num_before:
            watch.call_back()
            return
        self._num_before, self._was_sending = self._num_started, self._num_started > self._num_done
        self._look_again(watch, limit_s)
