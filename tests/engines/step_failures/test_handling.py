"""After a step that failed: an engine goes on if its device does."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from engines.costs.step_cost import StepCost
from engines.scheduling.batch import Batch, Chunk
from engines.step_failures.errors import MOST_IN_A_ROW
from engines.step_failures.handling import FailedSteps
from mesh.wire.status import DecodeCost, PrefillCost
from tests.engines.scripted import ScriptedExecutor


class Device(ScriptedExecutor):
    """Raises ``lost`` when it is waited for."""

    def __init__(self, lost: Exception | None = None) -> None:
        super().__init__(StepCost(PrefillCost(0.0, 0.0), DecodeCost(0.0, 0.0)))
        self.lost = lost
        self.has_freed: list[bool] = []

    def recover(self, *, frees_memory: bool) -> None:
        self.has_freed.append(frees_memory)
        if self.lost is not None:
            raise self.lost


class Steps:
    """Of an engine: ``ends`` are the reasons for which its process would have ended."""

    def __init__(self, compute: ThreadPoolExecutor) -> None:
        self.device = Device()
        self.ends: list[str] = []
        self.failed_steps = FailedSteps(lambda: self.device, compute, self.ends.append)

    async def fail(self, error: Exception, *requests: str) -> None:
        await self.failed_steps.failed(Batch("s", [Chunk(request, [1], 0, [0]) for request in requests]), error)


@pytest.fixture
async def steps() -> AsyncIterator[Steps]:
    with ThreadPoolExecutor(1) as compute:
        yield Steps(compute)


async def test_an_error_of_a_request_is_none_of_the_engine(steps: Steps) -> None:
    await steps.fail(IndexError("index out of range in self"), "a", "b")
    assert (steps.ends, steps.device.has_freed) == ([], [False])


async def test_a_device_that_is_lost_ends_the_process(steps: Steps) -> None:
    await steps.fail(RuntimeError("CUDA error: device-side assert triggered\nmore"), "a", "b")
    assert steps.ends == ["its device is lost: RuntimeError: CUDA error: device-side assert triggered"]


async def test_a_device_that_shows_only_afterwards_that_it_is_lost_ends_the_process(steps: Steps) -> None:
    steps.device.lost = RuntimeError("CUDA error: device-side assert triggered")
    await steps.fail(RuntimeError("something else"), "a")
    assert steps.ends == ["its device is lost: RuntimeError: something else"]


async def test_where_memory_is_short_it_is_freed(steps: Steps) -> None:
    await steps.fail(MemoryError(), "a", "b")
    assert (steps.ends, steps.device.has_freed) == ([], [True])


async def test_an_engine_whose_steps_all_fail_ends(steps: Steps) -> None:
    for number in range(MOST_IN_A_ROW - 1):
        await steps.fail(ValueError("no"), f"r{number}")
    assert not steps.ends
    await steps.fail(ValueError("no"), "last")
    assert steps.ends == ["steps of many requests failed, and none was computed; the last: ValueError: no"]
