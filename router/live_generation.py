"""The tokens of one request on their way from the router to their consumer."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from router.generation import Placement, RouterError, TokenBatch


class LiveGeneration(AsyncIterator[TokenBatch]):
    """A `Generation` that the router feeds. For one consumer, in the event loop of the router."""

    __slots__ = ("_batches", "_cancel", "_error", "_finish", "_is_over", "_waiter", "id", "num_pending", "placement")

    def __init__(self, id_: str, cancel: Callable[[str], None], finish: Callable[[str], None]) -> None:
        self.id = id_
        self.placement: Placement | None = None
        self.num_pending = 0  # tokens that the consumer has not taken
        self._batches: deque[TokenBatch] = deque()
        self._cancel = cancel
        self._finish = finish
        self._error: RouterError | None = None
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<LiveGeneration {self.id} pending={self.num_pending}{' over' * self._is_over}>"

    def __aiter__(self) -> "LiveGeneration":
        return self

    async def __anext__(self) -> TokenBatch:
        while not self._batches:
            if self._error is not None:
                raise self._error
            if self._is_over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        batch = self._batches.popleft()
        self.num_pending -= len(batch.tokens)
        return batch

    @property
    def has_more(self) -> bool:
        return bool(self._batches)

    def cancel(self) -> None:
        self._leave(self._cancel)

    def finish(self) -> None:
        self._leave(self._finish)

    def _leave(self, tell: Callable[[str], None]) -> None:
        if not self._is_over:
            self._is_over = True
            tell(self.id)
            self._wake()

    def put(self, batch: TokenBatch) -> None:
        """The router's side: more tokens."""
        self._batches.append(batch)
        self.num_pending += len(batch.tokens)
        self._is_over = batch.finish is not None
        self._wake()

    def fail(self, error: RouterError) -> None:
        """The router's side: there will be no more tokens. Those that came are still the consumer's."""
        self._error = error
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
