"""A store on disk for an event loop: whatever is wrong with the disk, nobody waits without end."""

import asyncio
import threading

import pytest

from router.generation import Overloaded
from router.stores import store_thread
from router.stores.folders import state_folder
from router.stores.store_thread import StoreThread


class Store:
    """Counts what it did; ``gate`` holds it up."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.done = 0
        self.is_closed = False

    def work(self):
        self.gate.wait(30)
        self.done += 1
        return self.done

    def close(self):
        self.is_closed = True


async def test_it_is_opened_once_and_when_somebody_needs_it():
    opened = []
    thread = StoreThread("things", lambda: opened.append(Store()) or opened[-1], deadline_s=30.0)
    assert opened == []
    assert await asyncio.gather(*(thread.run(Store.work) for _ in range(3))) == [1, 2, 3]
    assert len(opened) == 1
    thread.close()
    assert opened[0].is_closed


async def test_what_waits_is_bounded_and_does_not_wait_without_end(monkeypatch):
    monkeypatch.setattr(store_thread, "MAX_WAITING", 2)
    store = Store()
    store.gate.clear()
    thread = StoreThread("things", lambda: store, deadline_s=0.05)
    waiting = [asyncio.ensure_future(thread.run(Store.work)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="the store of things has too much to do"):
        await thread.run(Store.work)
    for one in waiting:
        with pytest.raises(Overloaded, match="does not answer"):
            await one
    store.gate.set()
    thread.close()


@pytest.mark.parametrize("error", [OSError("the disk is full"), TimeoutError()])
async def test_a_broken_disk_is_said_so(error):
    def fail(_):
        raise error

    thread = StoreThread("things", Store, deadline_s=30.0)
    with pytest.raises(Overloaded, match="does not answer; the gateway's log says why"):
        await thread.run(fail)
    with pytest.raises(KeyError):
        await thread.run(lambda _: {}["other faults are the caller's"])
    assert await thread.run(Store.work) == 1
    thread.close()


def test_stores_are_beside_each_other(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert str(state_folder("mesh", "batches")) == "/var/state/meshserve/mesh/batches"
