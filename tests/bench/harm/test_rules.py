"""What rules do to messages."""

import asyncio
from random import Random

from bench.harm.rules import TRANSFER, Passing, between, corrupt, every, hold, is_transfer, lose, some, watch
from mesh.wire.messages import TransferMessage, encode
from mesh.wire.requests import Cancel, Epoch
from mesh.wire.transfers import Abort, Blocks

PAYLOAD = (b"a" * 64, b"b" * 64)
STATUS = Passing("prefill", "decode", (b"status", b"ms1", b"prefill@1", b"\x80"), is_status=True)


def passing(message, payload=(), source="prefill", target="decode"):
    return Passing(source, target, (b"ms1", b"prefill@1", encode(message), *payload))


def blocks(seq=0):
    return passing(Blocks("r.0.1", seq, 0, 32, [1, 2], [1, 1], []), PAYLOAD)


def are_blocks(message):
    return message.kind == "Blocks"


def test_the_messages_of_transfers_are_all_known():
    assert {kind.__name__ for kind in TransferMessage.__args__} == TRANSFER


def test_a_message_tells_its_type_its_transfer_and_its_payload():
    assert (blocks().kind, blocks().transfer, blocks().payload) == ("Blocks", "r.0.1", PAYLOAD)
    assert Passing("a", "b", (b"ms1", b"a@1", b"\xc1")).kind == "?"
    assert (STATUS.kind, STATUS.payload) == ("status", ())


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
    assert all([await rule.apply(STATUS) is not None for _ in range(100)])
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
