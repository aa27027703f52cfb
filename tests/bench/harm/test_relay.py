"""Processes that talk through a relay: what passes, what is lost, what happens when an end dies."""

import asyncio
import contextlib

import pytest

from bench.harm.relay import Relay, routes
from bench.harm.rules import between, every, hold, lose
from mesh.directory import Endpoints
from mesh.sockets.sockets import Sockets
from mesh.wire.control import Stop
from mesh.wire.frames import Sender
from mesh.wire.requests import Cancel, Epoch
from mesh.wire.status import SupervisorStatus

DEADLINE_S = 60.0
STATUS = SupervisorStatus(1, "local", 1, [])


@pytest.fixture
def folders(tmp_path):
    found = {name: tmp_path / name for name in "ab"}
    for folder in found.values():
        folder.mkdir()
    return found


@contextlib.asynccontextmanager
async def bound(name, folders, incarnation=1):
    """A process that knows its own folder alone."""
    endpoints = {
        peer: Endpoints(f"ipc://{folders[name]}/{peer}.inbox", f"ipc://{folders[name]}/{peer}.status")
        for peer in folders
    }
    sockets = Sockets(Sender(name, incarnation), endpoints, Stop | Cancel)
    sockets.bind()
    try:
        yield sockets
    finally:
        await sockets.close()


@contextlib.asynccontextmanager
async def relayed(folders):
    relay = Relay(routes(folders))
    relay.start()
    try:
        yield relay
    finally:
        await relay.stop()


async def first(items):
    async with asyncio.timeout(DEADLINE_S):
        return await anext(items)


async def test_messages_payloads_and_statuses_pass(folders):
    async with bound("a", folders) as a, bound("b", folders) as b, relayed(folders):
        assert a.send("b", Cancel("r1", Epoch(1)), [b"raw" * 30_000, b""])
        received = await first(b.messages())
        assert (received.sender, received.message) == (a.me, Cancel("r1", Epoch(1)))
        assert [frame.bytes for frame in received.payload] == [b"raw" * 30_000, b""]
        b.subscribe(["a"])
        assert await first(a.subscribers())
        a.publish(STATUS)
        assert await first(b.broadcasts()) == (a.me, STATUS)


async def test_what_a_rule_takes_does_not_arrive(folders):
    async with bound("a", folders) as a, bound("b", folders) as b, relayed(folders) as relay:
        relay.rules.append(lose(every(2, lambda message: message.kind == "Cancel")))
        for number in range(6):
            a.send("b", Cancel(f"r{number}", Epoch(0)))
        messages = b.messages()
        assert [(await first(messages)).message.request for _ in range(3)] == ["r0", "r2", "r4"]
        await messages.aclose()


async def test_messages_wait_behind_a_partition(folders):
    async with bound("a", folders) as a, bound("b", folders) as b, relayed(folders) as relay:
        healed = asyncio.Event()
        relay.rules.append(hold(between(["a"], ["b"]), healed))
        a.send("b", Cancel("r1", Epoch(0)))
        arriving = asyncio.create_task(first(b.messages()))
        await asyncio.wait([arriving], timeout=0.2)
        assert not arriving.done()
        healed.set()
        assert (await arriving).message.request == "r1"


async def test_a_process_that_is_back_is_reached_again(folders):
    async with bound("a", folders) as a, relayed(folders):
        async with bound("b", folders) as b:
            a.send("b", Cancel("r1", Epoch(0)))
            assert (await first(b.messages())).message.request == "r1"
        async with bound("b", folders, incarnation=2) as b:
            a.forget("b")
            a.send("b", Cancel("r2", Epoch(0)))
            assert (await first(b.messages())).message.request == "r2"
