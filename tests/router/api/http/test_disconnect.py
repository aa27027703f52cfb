"""Work ends with its client, and waiting for it leaves nothing for the garbage collector."""

import asyncio
import gc

import pytest

from router.api.errors import ClientGoneError
from router.api.http.disconnect import Outlet, run_until


async def forever(ended: list[str] | None = None) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        if ended is not None:
            ended.append("ended")


async def soon(result: int = 1) -> int:
    await asyncio.sleep(0)
    return result


def test_result_of_work_is_returned_while_the_client_stays():
    assert asyncio.run(run_until(soon(7), forever())) == 7


def test_client_that_leaves_ends_the_work():
    async def leaves() -> None:
        await asyncio.sleep(0)

    ended = list[str]()
    with pytest.raises(ClientGoneError):
        asyncio.run(run_until(forever(ended), leaves()))
    assert ended == ["ended"]


def test_errors_of_the_work_are_raised_as_they_are():
    async def in_groups() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails())

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    for work in (fails(), in_groups()):
        with pytest.raises(ValueError, match="no"):
            asyncio.run(run_until(work, forever()))


def test_cancellation_from_outside_ends_both():
    async def cancelled() -> list[str]:
        ended = list[str]()
        task = asyncio.create_task(run_until(forever(ended), forever(ended)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ended

    assert asyncio.run(cancelled()) == ["ended", "ended"]


def test_message_that_does_not_leave_in_time_ends_the_work():
    async def never(_: object) -> None:
        await asyncio.Event().wait()

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    async def sends(outlet: Outlet) -> None:
        await outlet.send({"type": "http.response.body"})

    async def stuck() -> None:
        outlet = Outlet(never)
        await run_until(sends(outlet), outlet.abandoned(receive, 0.01))

    with pytest.raises(ClientGoneError):
        asyncio.run(stuck())


def test_calls_leave_no_cycles():
    async def many() -> int:
        async def receive() -> dict[str, object]:
            await asyncio.Event().wait()
            return {}

        outlet = Outlet(lambda _: asyncio.sleep(0))
        await run_until(soon(), outlet.abandoned(receive))
        gc.collect()
        for _ in range(50):
            await run_until(soon(), outlet.abandoned(receive))
        return gc.collect()

    assert asyncio.run(many()) < 50
