import asyncio

import pytest

from mesh.addresses import Endpoints
from mesh.heartbeat import Heartbeat
from mesh.messages import Sender, Stop, SupervisorStatus
from mesh.sockets import Sockets

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
