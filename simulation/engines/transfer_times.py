"""Models how long KV blocks take from one engine to another, and how copies to one engine share its time."""

import heapq
from collections.abc import Callable
from math import inf
from typing import Any

from simulation.kernel import Kernel


class CopyModel:
    """Seconds to fetch the blocks of a chunk as the product does: in messages of a bounded size, one after the other.

    Each costs ``message_s`` and its bytes at the bandwidth. Others follow while one is copied, ``window`` of them at
    most: where copies are faster than acknowledgements (``round_trip_s``), these set the pace.
    """

    def __init__(
        self,
        block_bytes: int,
        *,
        bytes_per_s: float,
        message_s: float,
        message_bytes: int,
        window: int,
        round_trip_s: float,
    ) -> None:
        self._s_per_block = block_bytes / bytes_per_s
        self._message_s = message_s
        self._message_blocks = max(1, message_bytes // block_bytes)
        self._window = window
        self._round_trip_s = round_trip_s

    def elapsed_s(self, num_blocks: int) -> float:
        """Return the seconds from the arrival of the first message to the end of the last copy."""
        num_messages = -(-num_blocks // self._message_blocks)
        copies_s = num_messages * self._message_s + num_blocks * self._s_per_block
        one_s = self._message_s + min(num_blocks, self._message_blocks) * self._s_per_block
        stalls_s = max(0.0, (one_s + self._round_trip_s) - self._window * one_s)
        return copies_s + stalls_s * ((num_messages - 1) // self._window)


class Copier:
    """An engine's copy thread. Several transfers take turns, message by message: each gets its share of the time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._served_s = 0.0  # of each copy that has been there all the time
        self._served_at = 0.0
        self._running: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._num_started = 0
        self._armed_at = inf

    def copy(self, elapsed_s: float, then: Callable[..., object], *arguments: Any) -> None:
        """Call ``then(*arguments)`` when a copy that takes ``elapsed_s`` alone is done."""
        self._serve()
        self._num_started += 1
        heapq.heappush(self._running, (self._served_s + elapsed_s, self._num_started, then, arguments))
        self._arm()

    def _serve(self) -> None:
        now = self._kernel.now
        if self._running:
            self._served_s += (now - self._served_at) / len(self._running)
        self._served_at = now

    def _arm(self) -> None:
        self._armed_at = self._kernel.now + (self._running[0][0] - self._served_s) * len(self._running)
        self._kernel.at(self._armed_at, self._end_copy, self._armed_at)

    def _end_copy(self, when: float) -> None:
        if when != self._armed_at:
            return  # another copy came in between
        self._serve()
        self._served_s, _, then, arguments = heapq.heappop(self._running)
        self._armed_at = inf
        if self._running:
            self._arm()
        then(*arguments)
