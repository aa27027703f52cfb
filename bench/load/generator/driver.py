"""Sends requests at their times (open loop), or each when another one ended (closed loop)."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count, cycle, islice

from bench.load.client.answer import Answer
from bench.load.client.http import HttpClient
from bench.load.client.visit import Visit
from bench.load.generator.wire import Assignment, Shape
from bench.load.prompts.bodies import Bodies
from bench.load.results.outcome import Failure, Outcome

EARLY_S = 0.001  # timers are a millisecond coarse and late: wake up early, and look often for the rest


class Driver:
    """One process's part of a run. ``tell`` gets each outcome, cancelled ones too."""

    def __init__(self, assignment: Assignment, client: HttpClient, tell: Callable[[Outcome], None]) -> None:
        self.num_sent = 0
        self._assignment = assignment
        self._bodies = Bodies(assignment.recipe)
        self._client = client
        self._tell = tell
        self._start_at = 0.0

    async def run(self, start_at: float, stop: asyncio.Event) -> None:
        """Until all have ended, or ``stop``: then those that are on their way are cancelled, and told as such."""
        self._start_at = start_at
        load = asyncio.create_task(self._open() if self._assignment.pace.due_s is not None else self._closed())
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((load, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if load.done():
            load.result()
        else:
            load.cancel()
            await asyncio.wait((load,))

    # --- open loop ----------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        pace = self._assignment.pace
        slots = asyncio.Semaphore(pace.num_slots) if pace.num_slots else None
        async with asyncio.TaskGroup() as visits:
            for (number, shape), due_s in zip(self._numbered(), pace.due_s or (), strict=False):
                body = self._bodies.make(number, shape)  # before it is due, so that it is sent in time
                due_at = self._start_at + due_s
                await _until(due_at)
                visit = self._visit(number, shape, due_at, time.monotonic())
                visits.create_task(self._converse(visit, body, slots))

    async def _converse(self, first: Visit, body: bytes, slots: asyncio.Semaphore | None) -> None:
        """One turn after the other: each when its client has been answered, and has thought."""
        await self._when_free(first, body, slots)
        for turn, shape in enumerate(first.shape.then, 1):
            number, due_at = first.number + turn, time.monotonic() + shape.think_s
            due_at = max(due_at, self._start_at + shape.at_s)
            body = self._bodies.make(number, shape, first.number)
            await _until(due_at)
            await self._when_free(self._visit(number, shape, due_at, time.monotonic()), body, slots)

    async def _when_free(self, visit: Visit, body: bytes, slots: asyncio.Semaphore | None) -> None:
        if slots is None:
            await self._run(visit, body)
            return
        async with slots:  # in the order of their times
            await self._run(visit, body)

    # --- closed loop --------------------------------------------------------------------------------------------------

    async def _closed(self) -> None:
        numbered = self._numbered()
        await _until(self._start_at)
        async with asyncio.TaskGroup() as users:
            for _ in range(self._assignment.pace.num_slots or 1):
                users.create_task(self._user(numbered))

    async def _user(self, numbered: Iterator[tuple[int, Shape]]) -> None:
        duration_s = self._assignment.pace.duration_s
        for number, shape in numbered:
            due_at = time.monotonic() + shape.think_s
            if duration_s is not None and due_at - self._start_at >= duration_s:
                return
            body = self._bodies.make(number, shape)
            if shape.think_s:
                await _until(due_at)
            now = time.monotonic()
            await self._converse(self._visit(number, shape, due_at if shape.think_s else now, now), body, None)

    # --- both ---------------------------------------------------------------------------------------------------------

    def _numbered(self) -> Iterator[tuple[int, Shape]]:
        """This process's conversations; in a closed loop with a duration, endlessly."""
        mine = self._assignment
        numbers = count(mine.first, mine.step)
        if mine.pace.duration_s is None:
            numbers = islice(numbers, len(mine.shapes))  # type: ignore[assignment]
        shapes = cycle(mine.shapes)
        return ((number * mine.most_turns, shape) for number, shape in zip(numbers, shapes, strict=False))

    def _visit(self, number: int, shape: Shape, due_at: float, woke_at: float) -> Visit:
        return Visit(number, shape, due_at, woke_at, answer=Answer(keeps_text=self._assignment.keeps_text))

    async def _run(self, visit: Visit, body: bytes) -> None:
        mine = self._assignment
        self.num_sent += 1
        failure: Failure | None = Failure.CANCELLED
        reason: str | None = None
        try:
            failure, reason = await visit.run(
                self._client, mine.recipe.api, body, self._headers(visit.shape), mine.timeout_s
            )
        finally:
            self._tell(visit.outcome(self._start_at, time.monotonic(), failure, reason))

    def _headers(self, shape: Shape) -> Mapping[str, str]:
        """Promises and priority, as this project's gateways read them."""
        headers = {}
        if shape.priority is not None:
            headers["x-priority"] = str(shape.priority)
        if self._assignment.sends_promises and shape.promise is not None:
            for name, value_s in (("ttft", shape.promise.ttft_s), ("tpot", shape.promise.tpot_s)):
                if value_s is not None:
                    headers[f"x-slo-{name}-ms"] = f"{1e3 * value_s:.3f}"
        return headers


async def _until(at: float) -> None:
    """Not before, and hardly after."""
    delay = at - time.monotonic() - EARLY_S
    await asyncio.sleep(max(0.0, delay))
    while time.monotonic() < at:  # noqa: ASYNC110  # no event is as punctual
        await asyncio.sleep(0)
