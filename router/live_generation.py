"""The tokens of one request on their way from the router to their consumer."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from router.generation import Route, RouterError, TokenBatch
from router.history.timeline import RequestTimeline

TOKEN_BYTES: Final = 64
LOGPROB_BYTES: Final = 128  # a pair of a token and its number, as objects


class LiveGeneration:
    """A `Generation` that the router feeds. For one consumer, in the event loop of the router."""

    __slots__ = (
        "_batches",
        "_cancel",
        "_error",
        "_finish",
        "_is_over",
        "_loop",
        "_tell",
        "_tells_soon",
        "_timeline",
        "has_more",
        "id",
        "pending_bytes",
    )

    def __init__(self, timeline: RequestTimeline, cancel: Callable[[str], None], finish: Callable[[str], None]) -> None:
        self.id = timeline.id
        self.pending_bytes = 0  # about what the batches take that the consumer has not taken
        self.has_more = False
        self._timeline = timeline
        self._batches: deque[TokenBatch] = deque()
        self._cancel = cancel
        self._finish = finish
        self._error: RouterError | None = None
        self._is_over = False
        self._loop: asyncio.AbstractEventLoop | None = None  # to ask asyncio for it is a system call
        self._tell: Callable[[], None] | None = None  # who listens
        self._tells_soon = False

    def __repr__(self) -> str:
        return f"<LiveGeneration {self.id} pending={self.pending_bytes}{' over' * self._is_over}>"

    @property
    def route(self) -> Route | None:
        return self._timeline.route

    @property
    def ttft_s(self) -> float | None:
        return self._timeline.ttft_s

    @property
    def trace_id(self) -> str | None:
        return self._timeline.trace_id

    # --- the consumer's side ------------------------------------------------------------------------------------------

    def listen(self, tell: Callable[[], None]) -> None:
        self._tell, self._loop = tell, asyncio.get_running_loop()
        if self._batches or self._error is not None:
            self._tell_soon()

    def take(self) -> TokenBatch | None:
        batches = self._batches
        if not batches:
            if self._error is not None:
                raise self._error
            return None
        batch = batches.popleft()
        self.pending_bytes -= _size(batch)
        self.has_more = bool(batches)
        return batch

    def cancel(self) -> None:
        self._leave(self._cancel)

    def finish(self) -> None:
        self._leave(self._finish)

    def _leave(self, end: Callable[[str], None]) -> None:
        self._tell = None
        if not self._is_over:
            self._is_over = True
            end(self.id)

    # --- the router's side --------------------------------------------------------------------------------------------

    def put(self, batch: TokenBatch) -> None:
        """Add new tokens for the consumer."""
        self._batches.append(batch)
        self.pending_bytes += _size(batch)
        self.has_more = True
        self._is_over = batch.finish is not None
        if not self._tells_soon:
            self._tell_soon()

    def fail(self, error: RouterError) -> None:
        """There will be no more tokens. Those that came are still the consumer's."""
        self._error = error
        self._is_over = True
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._loop is not None and not self._tells_soon:
            self._tells_soon = True
            self._loop.call_soon(self._tell_now)

    def _tell_now(self) -> None:
        self._tells_soon = False
        if self._tell is not None:
            self._tell()


def _size(batch: TokenBatch) -> int:
    """Without what is said of the prompt: that comes once, and is bounded where it is asked for."""
    size = TOKEN_BYTES * len(batch.tokens)
    if batch.logprobs is not None:
        size += LOGPROB_BYTES * sum([1 + len(entry.top) for entry in batch.logprobs])
    return size
