"""Decides who is next where one thing is done at a time: clients take turns, so many of one delay another by one."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from router.generation import Overloaded

RETRY_AFTER_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class LineLimits:
    """Bounds of a line of waiting clients. ``what`` waits, in the words of a person."""

    what: str
    max_of_one: int  # of one client
    max_waiting: int
    wait_s: float


class Turns:
    """Keeps those that wait: clients take turns, and each one's own are in order. Pure."""

    def __init__(self, limits: LineLimits) -> None:
        self._limits = limits
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._num_waiting = 0

    def join(self, client: str, turn: "asyncio.Future[None]") -> None:
        """Raise `Overloaded` if too many wait, of this client or in all."""
        own, limits = self._waiting.get(client, ()), self._limits
        if len(own) >= limits.max_of_one or self._num_waiting >= limits.max_waiting:
            raise Overloaded(f"too many {limits.what} are waiting: {len(own)} of yours", RETRY_AFTER_S)
        self._waiting.setdefault(client, deque()).append(turn)
        self._num_waiting += 1

    def next(self) -> "asyncio.Future[None] | None":
        while self._waiting:
            client, own = self._waiting.popitem(last=False)
            turn = own.popleft()
            self._num_waiting -= 1
            if own:
                self._waiting[client] = own
            if not turn.done():  # who gave up waiting is passed over
                return turn
        return None


class Line:
    """Lets one in at a time."""

    def __init__(self, limits: LineLimits) -> None:
        self._limits = limits
        self._turns = Turns(limits)
        self._is_busy = False

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Raise `Overloaded` if too many wait, or none was over in time."""
        if self._is_busy:
            await self._wait(client)
        self._is_busy = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, client: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._turns.join(client, turn)
        try:
            async with asyncio.timeout(self._limits.wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            if isinstance(error, TimeoutError):
                raise Overloaded(f"too many {self._limits.what} are waiting", RETRY_AFTER_S) from None
            raise

    def _pass_on(self) -> None:
        turn = self._turns.next()
        self._is_busy = turn is not None
        if turn is not None:
            turn.set_result(None)
