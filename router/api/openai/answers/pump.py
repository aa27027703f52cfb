"""Hands the pieces of a call's choices to its sink, in the turn of the event loop in which their tokens came.

No task waits for tokens: to wake one takes longer than to write what came. Only what a slow client holds up becomes
one, for a while; what comes meanwhile stays with the generations, whose bounds cut such a client off.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final, Protocol

from router.api.errors import ClientGoneError
from router.api.http.disconnect import TaskWatch
from router.api.http.eager import begin
from router.api.openai.answers.choice import Choice, Piece

HELD_UP_S: Final = 30.0  # that a client may let one message wait to leave


class Sink(Protocol):
    """Takes the pieces of an answer. A choice's pieces come in order; choices interleave."""

    async def take(self, choice: Choice, piece: Piece, *, more: bool) -> None:
        """Take a piece of the answer. ``more``: the next piece, or the end of the call, comes without waiting."""


class Pump:
    """The choices of one call and the sink of their pieces. `run` it once."""

    def __init__(self, choices: Sequence[Choice], sink: Sink) -> None:
        self._choices = choices
        self._sink = sink
        self._held_up: dict[int, asyncio.Task[None]] = {}  # by the choice's index
        self._error: BaseException | None = None
        self._watch = TaskWatch()

    @property
    def _is_over(self) -> bool:
        return all(choice.finish is not None for choice in self._choices)

    async def run(self, gone: Coroutine[Any, Any, None]) -> None:
        """Return when all choices have ended. Raise the first error, or `ClientGoneError` once ``gone`` returns."""
        for choice in self._choices:
            choice.generation.listen(partial(self._hand_on, choice))
        try:
            await self._watch.wait(gone)
        finally:
            await self._stop()
        if self._error is not None:
            raise self._error
        if not self._is_over:
            raise ClientGoneError

    async def _stop(self) -> None:
        held_up = list(self._held_up.values())
        for task in held_up:
            task.cancel()
        if held_up:
            await asyncio.wait(held_up)

    def _hand_on(self, choice: Choice) -> None:
        """Hand on what came of a choice, unless its client is behind anyhow."""
        if choice.index in self._held_up or self._error is not None:
            return
        try:
            left = begin(self._drain(choice))
        except Exception as error:
            self._fail(error)
            return
        if left is not None:
            task = self._held_up[choice.index] = asyncio.get_running_loop().create_task(_in_time(left))
            task.add_done_callback(partial(self._go_on, choice))
        elif choice.finish is not None and self._is_over:
            self._watch.call_back()

    def _go_on(self, choice: Choice, task: asyncio.Task[None]) -> None:
        """The client took what had held it up."""
        del self._held_up[choice.index]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._fail(error)
        else:
            self._hand_on(choice)

    async def _drain(self, choice: Choice) -> None:
        """Hand on all that came, or up to what the client held up: it has its time for each piece."""
        generation = choice.generation
        while choice.finish is None and choice.index not in self._held_up and (batch := generation.take()) is not None:
            piece = choice.feed(batch)
            await self._sink.take(choice, piece, more=self._is_over if piece.finish else generation.has_more)
            if piece.finish is not None:
                generation.finish()

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._watch.call_back()


async def _in_time(left: Coroutine[Any, Any, None]) -> None:
    """Raise `ClientGoneError` if the client does not let it leave."""
    try:
        async with asyncio.timeout(HELD_UP_S):
            await left
    except TimeoutError:
        raise ClientGoneError from None
