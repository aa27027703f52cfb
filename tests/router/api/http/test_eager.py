"""Work that does not wait needs no task, and what waits goes on in one as if it had been there from the start."""

import asyncio

import pytest

from router.api.http.eager import begin


async def steps(done, *awaited):
    try:
        for one in awaited:
            await one
            done.append("waited")
    finally:
        done.append("ended")


async def test_work_that_does_not_wait_is_done_at_once():
    done = []
    assert begin(steps(done)) is None
    assert done == ["ended"]


async def test_work_that_waits_goes_on_in_a_task():
    done, event = [], asyncio.Event()
    left = begin(steps(done, event.wait(), asyncio.sleep(0), asyncio.sleep(0.001)))
    assert done == []
    task = asyncio.create_task(left)
    event.set()
    await task
    assert done == ["waited"] * 3 + ["ended"]


async def test_errors_come_out_whenever_they_happen():
    async def fails(*awaited):
        for one in awaited:
            await one
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        begin(fails())
    with pytest.raises(ValueError, match="no"):
        await begin(fails(asyncio.sleep(0)))


async def test_what_is_left_can_be_cancelled_or_closed():
    done = []
    task = asyncio.create_task(begin(steps(done, asyncio.Event().wait())))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    left = begin(steps(done, asyncio.Event().wait()))
    left.send(None)
    left.close()
    assert done == ["ended", "ended"]
