import asyncio
import threading
import time

import pytest

from mesh.directory import Endpoints
from mesh.membership.heartbeat import Heartbeat
from mesh.sockets.sockets import Sockets
from mesh.wire.control import Stop
from mesh.wire.frames import Sender
from mesh.wire.status import SupervisorStatus

DEADLINE_S = 60.0


@pytest.fixture
async def pair(tmp_path):
    endpoints = {name: Endpoints(f"ipc://{tmp_path}/{name}.inbox", f"ipc://{tmp_path}/{name}.status") for name in "ab"}
    sockets = [Sockets(Sender(name, 1), endpoints, Stop) for name in "ab"]
    for each in sockets:
        each.bind()
    yield sockets
    for each in sockets:
        await each.close()


async def test_a_process_whose_loop_is_held_up_is_heard_to_live(pair):
    a, b = pair
    b.subscribe(["a"])
    statuses = Counter()
    beating = asyncio.create_task(Heartbeat(a, statuses, period_s=0.02).run())
    beacons = b.beacons(lambda _: True)
    async with asyncio.timeout(DEADLINE_S):
        while (await anext(beacons))[1] is None:
            pass
        time.sleep(0.5)  # noqa: ASYNC251 - what this is about
        num_pulses, last = 0, statuses.seq  # others may still be on their way
        while (status := (await anext(beacons))[1]) is None or status.seq <= last:
            num_pulses += status is None
        assert num_pulses >= 5, "of about 23"
        num_pulses = sum([(await anext(beacons))[1] is None for _ in range(10)])
        assert num_pulses < 5, "the loop turns: it speaks for itself"
    beating.cancel()


async def test_a_pulse_loses_no_subscription(pair):
    """The thread's sending takes the signal that one came."""
    a, b = pair
    welcomed = asyncio.ensure_future(anext(a.subscribers()))
    await asyncio.sleep(0)
    stop = threading.Event()

    def keep_on():
        while not stop.is_set():
            a.pulse()

    pulses = threading.Thread(target=keep_on)
    pulses.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            b.subscribe(["a"])
            assert await welcomed
    finally:
        stop.set()
        pulses.join()


class Counter:
    """Makes statuses with rising numbers."""

    def __init__(self):
        self.seq = 0

    def __call__(self):
        self.seq += 1
        return SupervisorStatus(self.seq, "local", 7, [])


async def test_publishes_every_period(pair):
    a, b = pair
    b.subscribe(["a"])
    beating = asyncio.create_task(Heartbeat(a, Counter(), period_s=0.001).run())
    async with asyncio.timeout(DEADLINE_S):
        heard = [(await anext(b.broadcasts()))[1].seq for _ in range(5)]
    beating.cancel()
    assert heard == sorted(heard)


async def test_publishes_at_once_to_who_joins_and_when_poked(pair):
    a, b = pair
    counter = Counter()
    heartbeat = Heartbeat(a, counter, period_s=3600.0)
    beating = asyncio.create_task(heartbeat.run())
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE_S):
        b.subscribe(["a"])
        first = (await anext(b.broadcasts()))[1].seq
        heartbeat.poke()
        heartbeat.poke()
        assert (await anext(b.broadcasts()))[1].seq == first + 1
    beating.cancel()
    assert counter.seq == first + 1
