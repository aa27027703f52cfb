"""What an engine's process does about steps that fail: it frees memory, waits for the device, or ends."""

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

import structlog

from engines.scheduling.batch import Batch, StepExecutor
from engines.step_failures.errors import StepError, StepFailures, classify
from mesh.errors import EXIT_FAILURE
from mesh.process.process import first_line

log = structlog.get_logger()


def end_at_once(reason: str) -> None:
    """Calls of a device that is lost may not return; the supervisor tells the others and starts a new process."""
    log.critical("ends", reason=reason)
    sys.stderr.write(f"ended: {reason}\n")
    sys.stderr.flush()
    os._exit(EXIT_FAILURE)


class FailedSteps:
    """``compute`` is the thread of the executor. ``end``: called where nothing but a new process helps."""

    def __init__(
        self, executor: Callable[[], StepExecutor], compute: Executor, end: Callable[[str], None] = end_at_once
    ) -> None:
        self._executor = executor
        self._compute = compute
        self._end = end
        self._failures = StepFailures()

    def computed(self) -> None:
        """A step was."""
        self._failures.computed()

    async def failed(self, batch: Batch, error: Exception) -> None:
        """A step was not. If the device can go on, so can all requests but those that are to blame."""
        kind = classify(error)
        if kind is StepError.DEVICE or not await self._recovers(kind):
            self._end(f"its device is lost: {first_line(error)}")
        elif self._failures.failed([chunk.request for chunk in batch.chunks]):
            self._end(f"steps of many requests failed, and none was computed; the last: {first_line(error)}")

    async def _recovers(self, kind: StepError) -> bool:
        """Faults of kernels show when their device is waited for, at the latest."""
        recover = partial(self._executor().recover, frees_memory=kind is StepError.MEMORY)
        try:
            await asyncio.get_running_loop().run_in_executor(self._compute, recover)
        except Exception:
            log.exception("the device does not go on after a step that failed")
            return False
        return True
