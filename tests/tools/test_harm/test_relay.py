"""Processes that talk through a relay: what passes, what is lost, what happens when an end dies, and its rules."""

import asyncio
import contextlib
from random import Random

import pytest

from mesh.directory import Endpoints
from mesh.sockets.sockets import Sockets
from mesh.wire.control import Stop
from mesh.wire.frames import Sender
from mesh.wire.messages import encode
from mesh.wire.requests import Cancel, Epoch
from mesh.wire.status import SupervisorStatus
from mesh.wire.transfers import Abort, Blocks
from tests.tools.harm.relay import Passing, Relay, between, corrupt, every, hold, is_transfer, lose, routes, some, watch

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


# --- rules ------------------------------------------------------------------------------------------------------------

PAYLOAD = (b"a" * 64, b"b" * 64)
A_STATUS = Passing("prefill", "decode", (b"status", b"ms1", b"prefill@1", b"\x80"), is_status=True)


def passing(message, payload=(), source="prefill", target="decode"):
    return Passing(source, target, (b"ms1", b"prefill@1", encode(message), *payload))


def blocks(seq=0):
    return passing(Blocks("r.0.1", seq, 0, 32, [1, 2], [1, 1], []), PAYLOAD)


def are_blocks(message):
    return message.kind == "Blocks"


def test_a_message_tells_its_type_its_transfer_and_its_payload():
    assert (blocks().kind, blocks().transfer, blocks().payload) == ("Blocks", "r.0.1", PAYLOAD)
    assert Passing("a", "b", (b"ms1", b"a@1", b"\xc1")).kind == "?"
    assert (A_STATUS.kind, A_STATUS.payload) == ("status", ())


async def test_every_third_is_lost():
    rule = lose(every(3, are_blocks))
    kept = [await rule.apply(blocks(seq)) is not None for seq in range(6)]
    assert kept == [True, True, False, True, True, False]
    assert await rule.apply(passing(Abort("t", ""))) is not None
    assert rule.counts == {"Blocks": 2}


async def test_random_loss_takes_its_share_of_what_is_chosen():
    rule = lose(some(0.2, Random(1), is_transfer))
    lost = sum([await rule.apply(blocks(seq)) is None for seq in range(1000)])
    assert 150 < lost < 250
    assert all([await rule.apply(A_STATUS) is not None for _ in range(100)])
    assert await rule.apply(passing(Cancel("r", Epoch(0)))) is not None


async def test_corruption_changes_one_byte_of_the_payload():
    rule = corrupt(every(2, lambda message: message.payload), Random(1))
    whole = blocks()
    for _ in range(10):
        assert await rule.apply(whole) == whole.frames
        changed = await rule.apply(whole)
        assert changed[:3] == whole.frames[:3]
        assert list(map(len, changed)) == list(map(len, whole.frames))
        assert sum(a != b for a, b in zip(b"".join(changed), b"".join(whole.frames), strict=True)) == 1
    assert await rule.apply(passing(Abort("t", ""))) is not None  # nothing to change in it


async def test_a_partition_holds_both_ways_until_it_heals():
    released = asyncio.Event()
    rule = hold(between(["prefill"], ["decode"]), released)
    there = asyncio.create_task(rule.apply(blocks()))
    back = asyncio.create_task(rule.apply(passing(Abort("t", ""), source="decode", target="prefill")))
    assert await rule.apply(passing(Abort("t", ""), target="gateway")) is not None
    _, pending = await asyncio.wait([there, back], timeout=0.01)
    assert pending == {there, back}
    released.set()
    assert await there is not None
    assert await back is not None
    assert await rule.apply(blocks()) is not None


async def test_a_watch_acts_once():
    seen = []
    rule = watch(are_blocks, seen.append)
    assert await rule.apply(passing(Abort("t", ""))) is not None
    assert not rule.happened.is_set()
    for _ in range(2):
        assert await rule.apply(blocks()) is not None
    assert [message.kind for message in seen] == ["Blocks"]
    assert rule.happened.is_set()
