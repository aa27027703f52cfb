"""Simulations in processes of their own: one at a time, ended with whoever waits for them."""

import asyncio
import os
import sys

import psutil
import pytest

from router.api.errors import ApiError
from router.ui.what_if import Failure, Result, WhatIfProgress
from router.ui.what_if_run import Simulations


def program(code):
    return (sys.executable, "-c", f"import sys, time, subprocess, os\n{code}")


async def told(progress):
    pass


async def test_progress_remarks_and_the_result_are_told(tmp_path):
    heard = []

    async def tell(progress):
        heard.append(progress)

    code = (
        "sys.stderr.write('a remark\\nsimulating x: 50%, 3 s left\\n' + 'x' * 100_000 + '\\n')\n"
        "print('{\"runs\":' + str(sys.argv[2:]).replace(chr(39), chr(34)) + '}')"
    )
    answer = await Simulations(program(code)).run(["a", "b"], tmp_path, tell)
    assert isinstance(answer, Result)
    assert bytes(answer.comparison) == b'{"runs":["a", "b"]}'
    assert (answer.notes, heard) == (["a remark"], [WhatIfProgress(0.5, "3 s")])


async def test_a_failure_is_the_line_of_the_command(tmp_path):
    code = f"sys.stderr.write('{tmp_path}/recording.jsonl:3: wrong\\n'); sys.exit(2)"
    assert await Simulations(program(code)).run([], tmp_path, told) == Failure("recording.jsonl:3: wrong")


STARTS_ANOTHER = (
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "open(sys.argv[2], 'w').write(f'{os.getpid()} {child.pid}')\n"
    "sys.stderr.write('simulating x: 1%\\n'); sys.stderr.flush()\n"
    "time.sleep(600)"
)


async def started(runs, folder):
    """A simulation that goes on, and the processes that it is."""
    going = asyncio.Event()

    async def tell(progress):
        going.set()

    running = asyncio.create_task(runs.run([str(folder / "pids")], folder, tell))
    async with asyncio.timeout(60):
        await going.wait()
    return running, [psutil.Process(int(pid)) for pid in (folder / "pids").read_text().split()]


async def test_whoever_goes_away_ends_it_and_what_it_started(tmp_path):
    running, processes = await started(Simulations(program(STARTS_ANOTHER)), tmp_path)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert psutil.wait_procs(processes, timeout=10)[1] == []


async def test_a_gateway_that_stops_ends_it(tmp_path):
    runs = Simulations(program(STARTS_ANOTHER))
    running, processes = await started(runs, tmp_path)
    runs.end()
    assert await running == Failure("This gateway stops")
    assert psutil.wait_procs(processes, timeout=10)[1] == []
    with pytest.raises(ApiError, match="This gateway stops"), runs.turn():
        pass


async def test_it_has_limited_time(tmp_path):
    answer = await Simulations(program("time.sleep(600)"), limit_s=0.2).run([], tmp_path, told)
    assert isinstance(answer, Failure)
    assert answer.message.startswith("It was stopped after 0 s; choose a shorter recording")


def test_one_has_its_turn_at_a_time():
    runs = Simulations()
    with runs.turn():
        with pytest.raises(ApiError, match="simulates for somebody else") as caught, runs.turn():
            pass
        assert caught.value.status == 409
    with runs.turn():
        assert runs.is_busy


async def test_a_real_one_is_bounded_and_says_what_is_wrong(tmp_path):
    answer = await Simulations().run(["simulate", str(tmp_path / "none.toml"), "--trace=x"], tmp_path, told)
    assert isinstance(answer, Failure)
    assert answer.message.startswith("none.toml: no such file")
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


async def test_who_begins_anew_waits_until_the_one_before_has_gone():
    runs = Simulations()

    async def leave_soon() -> None:
        with runs.turn():
            await asyncio.sleep(0)

    leaving = asyncio.create_task(leave_soon())
    await asyncio.sleep(0)
    assert runs.is_busy
    await runs.settle()
    with runs.turn():
        await leaving
