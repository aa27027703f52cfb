"""Iterations of a server that computes nothing: continuous batching with chunked prefills, as vLLM has it."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

Deliver = Callable[[], None]


@dataclass(frozen=True, slots=True)
class MockCosts:
    """An iteration takes ``step_s``, and more for each token of a prompt and each request that decodes."""

    step_s: float
    token_s: float = 0.0
    request_s: float = 0.0
    chunk_tokens: int = 512
    max_running: int = 64


@dataclass(slots=True, eq=False)
class MockRequest:
    """``deliver`` is called for each token."""

    num_input: int
    num_output: int
    deliver: Deliver
    num_computed: int = 0
    num_given: int = 0
    is_left: bool = False  # its client went away
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def decodes(self) -> bool:
        return self.num_computed >= self.num_input


class MockBatches:
    """Runs iterations while there are requests: first come, first served. Each takes ``slowness`` times as long."""

    def __init__(self, costs: MockCosts) -> None:
        self._costs = costs
        self.slowness = 1.0
        self.waiting: deque[MockRequest] = deque()
        self.running: list[MockRequest] = []
        self._loop: asyncio.Task[None] | None = None

    def add(self, request: MockRequest) -> None:
        self.waiting.append(request)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        due_at = time.monotonic()
        while self.waiting or self.running:
            shares = self._plan()
            num_tokens = sum(share for request, share in shares if not request.decodes)
            num_decodes = sum(request.decodes for request, _ in shares)
            costs = self._costs
            due_at = max(due_at, time.monotonic() - 0.05)  # a late timer is made up for
            took_s = costs.step_s + costs.token_s * num_tokens + costs.request_s * num_decodes
            due_at += self.slowness * took_s
            await asyncio.sleep(max(0.0, due_at - time.monotonic()))
            self._finish(shares)

    def _plan(self) -> list[tuple[MockRequest, int]]:
        self.running = [request for request in self.running if not request.is_left]
        left = self._costs.chunk_tokens - sum(request.decodes for request in self.running)
        shares = [(request, 1) for request in self.running if request.decodes]
        while self.waiting and len(self.running) < self._costs.max_running:
            self.running.append(self.waiting.popleft())
        for request in self.running:
            if not request.decodes and left > 0:
                share = min(left, request.num_input - request.num_computed)
                shares.append((request, share))
                left -= share
        return shares

    def _finish(self, shares: list[tuple[MockRequest, int]]) -> None:
        for request, share in shares:
            if not request.decodes:
                request.num_computed += share
            if request.decodes and not request.is_left:
                request.num_given += 1
                request.deliver()
            if request.num_given >= request.num_output:
                self.running.remove(request)
                request.done.set()
