"""Work beside the event loop, and what becomes of its memory."""

import asyncio
import threading

import pytest

from mesh.process.freed_memory import give_back_freed_memory
from router.api import background
from router.api.background import Background


async def test_work_is_done_in_another_thread_and_its_memory_given_back_once(monkeypatch):
    monkeypatch.setattr(background, "TIDY_S", 0.01)
    loop, tidied = asyncio.get_running_loop(), asyncio.Event()
    calls = []

    def tidy():
        calls.append(threading.current_thread())
        loop.call_soon_threadsafe(tidied.set)

    beside = Background(tidy)
    threads = await asyncio.gather(*[beside.run(str(i), threading.current_thread) for i in range(5)])
    assert set(threads) != {threading.current_thread()}
    await tidied.wait()
    assert calls == [threads[0]]
    tidied.clear()
    with pytest.raises(ZeroDivisionError):
        await beside.run("a", lambda: 1 // 0)
    await tidied.wait()
    assert len(calls) == 2


def test_freed_memory_can_be_given_back():
    assert isinstance(give_back_freed_memory(), bool)
