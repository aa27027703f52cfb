"""Runs the batches that a gateway has claimed, a bounded number of lines at a time.

Lines are fed one after the other while few of them wait for an engine: that is how much the mesh can take beside its
promises. An answer is in the store before it counts, so that after a restart only lines without one run again.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

import structlog

from router.batches.answering import BatchCallers, LineAnswerer
from router.batches.batch_run import BatchRun, Feeding, RunnerParts
from router.batches.records import KEPT_S, StoredBatch
from router.batches.stored import StoredBatches
from router.generation import RouterError

CLAIM_S: Final = 20.0  # for which batches are claimed, again and again
LOOK_S: Final = 0.5  # between two looks for batches, and for what became of those that run
TIDY_S: Final = 3600.0
MAX_RUNNING: Final = 8  # batches at a time

log = structlog.get_logger()


class BatchRunner:
    """The runner of one gateway. ``wall_clock``: seconds since the epoch."""

    def __init__(
        self,
        stored: StoredBatches,
        answerer: LineAnswerer,
        callers: BatchCallers,
        wall_clock: Callable[[], float],
        name: str,
        max_in_flight: int,
    ) -> None:
        self._stored = stored
        self._wall_clock = wall_clock
        self._name = f"{name}/{secrets.token_hex(8)}"
        self._parts = RunnerParts(stored, answerer, callers, wall_clock, self._name, Feeding(answerer, max_in_flight))
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._tidies_at = 0.0
        self._is_stopping = False

    def __repr__(self) -> str:
        return f"<BatchRunner {self._name} {list(self._runs)}>"

    def wake(self) -> None:
        """There is a new batch."""
        self._wake.set()

    def stop(self) -> None:
        """Stop: somebody else goes on."""
        self._is_stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Run until it is stopped. What it had is free for others then."""
        try:
            while not self._is_stopping:
                if self._stored.exists:
                    await self._look()
                if not self._is_stopping:
                    self._wake.clear()
                try:
                    async with asyncio.timeout(LOOK_S):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            await self._stop()

    async def _look(self) -> None:
        self._runs = {batch: run for batch, run in self._runs.items() if not run.done()}
        now, running = self._wall_clock(), list(self._runs)
        try:
            await self._stored.run(lambda store: store.renew(self._name, running, now + CLAIM_S))
            if (room := MAX_RUNNING - len(running)) > 0:
                claimed = await self._stored.run(lambda store: store.claim(self._name, now, now + CLAIM_S, room))
                for batch in claimed:
                    self._start(batch)
            if now >= self._tidies_at:
                self._tidies_at = now + TIDY_S
                await self._stored.run(lambda store: store.tidy(now, KEPT_S))
        except RouterError:
            await asyncio.sleep(LOOK_S)  # the store has said why

    def _start(self, batch: StoredBatch) -> None:
        log.info("runs a batch", batch=batch.id, status=str(batch.status), answered=batch.num_answered)
        self._runs[batch.id] = asyncio.create_task(BatchRun(batch, self._parts).run())

    async def _stop(self) -> None:
        for run in self._runs.values():
            run.cancel()
        await asyncio.gather(*self._runs.values(), return_exceptions=True)
        if self._stored.exists:
            try:
                await self._stored.run(lambda store: store.release(self._name))
            except RouterError:
                log.warning("batches stay claimed for a while", batches=list(self._runs))
