import asyncio
from contextlib import contextmanager

import zmq

from mesh.sockets.inlet import MAX_IN_A_ROW, Inlet


@contextmanager
def pipe(rest_s=0.0):
    """Something to send with, and the inlet that receives it."""
    context = zmq.Context()
    receiver, sender = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    receiver.bind("inproc://pipe")
    sender.connect("inproc://pipe")
    inlet = Inlet(receiver, rest_s)
    yield sender, inlet
    sender.close()
    inlet.close()
    context.term()


async def receive(inlet):
    return [frame.bytes for frame in await inlet.receive()]


async def test_takes_what_is_there_and_waits_for_more():
    with pipe() as (sender, inlet):
        sender.send_multipart([b"1", b"a"])
        assert await receive(inlet) == [b"1", b"a"]
        waiting = asyncio.create_task(receive(inlet))
        await asyncio.sleep(0)
        assert not waiting.done()
        sender.send(b"2")
        assert await waiting == [b"2"]


async def test_nothing_is_lost_while_nobody_waits():
    with pipe() as (sender, inlet):
        for number in range(50):
            waiting = asyncio.create_task(receive(inlet))
            await asyncio.sleep(0)
            sender.send(b"first %d" % number)
            assert await waiting == [b"first %d" % number]
            sender.send(b"second %d" % number)
            await asyncio.sleep(0)  # the loop may see the signal with nobody waiting
            await asyncio.sleep(0)
            assert await receive(inlet) == [b"second %d" % number]


async def test_a_flood_leaves_others_their_turn():
    with pipe() as (sender, inlet):
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for _ in range(5 * MAX_IN_A_ROW):
            sender.send(b"x")
        for _ in range(5 * MAX_IN_A_ROW):
            await inlet.receive()
        task.cancel()
        assert turns >= 4


async def test_a_cancelled_wait_loses_nothing():
    with pipe() as (sender, inlet):
        waiting = asyncio.create_task(receive(inlet))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        sender.send(b"x")
        assert await receive(inlet) == [b"x"]


async def test_an_inlet_that_rests_takes_what_came_meanwhile_in_one_go():
    with pipe(rest_s=0.02) as (sender, inlet):
        for number in range(3):
            waiting = asyncio.create_task(receive(inlet))
            await asyncio.sleep(0)
            sender.send(b"first %d" % number)
            await asyncio.sleep(0.005)
            sender.send(b"second %d" % number)
            assert not waiting.done()
            assert await waiting == [b"first %d" % number]
            assert await asyncio.wait_for(receive(inlet), 10) == [b"second %d" % number]
