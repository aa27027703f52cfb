"""A transfer over the mesh's own sockets, into real memory, with the machines at both ends."""

import asyncio

import numpy as np
import pytest

from kvtransfer.memory import KVMemory
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import (
    SHM,
    TCP,
    Adopt,
    BlocksReady,
    CommitRequested,
    Completed,
    ExportBlocks,
    ImportBlocks,
    ReleaseSource,
    Send,
    TransferLimits,
)
from kvtransfer.receive import ReceiveTransfer
from kvtransfer.send import SendTransfer
from kvtransfer.transport_choice import choose
from kvtransfer.transports import transports_of
from mesh.directory import Endpoints
from mesh.sockets.sockets import Sockets
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineMessage
from mesh.wire.transfers import Reserve

NUM_BLOCKS = 12
DEADLINE_S = 60.0


class Engine:
    """As much of an engine as a transfer needs."""

    def __init__(self, name, endpoints, shape):
        self.sockets = Sockets(Sender(name, 1), endpoints, EngineMessage)
        self.memory, self.peers = KVMemory.alone(shape, NUM_BLOCKS), PeerMemories()
        self.transports = transports_of(self.memory, self.peers, lambda _: True)
        self.machine = None
        self.ended = asyncio.Event()
        self.endings = []
        self.sockets.bind()

    def feed(self, event, *payload):
        self.carry_out(self.machine.handle(event, 0.0, *payload))

    def carry_out(self, effects):
        for effect in effects:
            match effect:
                case Send(to, message, payload):
                    assert self.sockets.send(to, message, payload)
                case ExportBlocks():
                    self.feed(self.transports[effect.transport].export_blocks(effect))
                case ImportBlocks():
                    self.feed(self.transports[effect.transport].import_blocks(effect))
                case Completed() | Adopt() | ReleaseSource():
                    self.endings.append(effect)
        if self.machine.is_over:
            self.ended.set()

    async def send_from(self):
        async for received in self.sockets.messages():
            self.feed(received.message)

    async def receive_into(self, table, setting):
        async for sender, message, payload in self.sockets.messages():
            if isinstance(message, Reserve):
                process = sender.process
                transport = choose(
                    setting, message.memory, "local", lambda ref, peer=process: self.peers.can_open(peer, ref)
                )
                self.machine = ReceiveTransfer(
                    process,
                    message,
                    blocks=table,
                    num_matched_tokens=0,
                    transport=transport,
                    limits=TransferLimits(),
                    now=0.0,
                )
                self.carry_out(self.machine.start())
            else:
                self.feed(message, [frame.buffer for frame in payload])

    async def close(self):
        await self.sockets.close()
        self.memory.close()


@pytest.fixture
async def engines(tmp_path, shape):
    endpoints = {name: Endpoints(f"ipc://{tmp_path}/{name}.inbox", f"ipc://{tmp_path}/{name}.status") for name in "ab"}
    engines = Engine("a", endpoints, shape), Engine("b", endpoints, shape)
    yield engines
    for engine in engines:
        await engine.close()


@pytest.mark.parametrize(("setting", "transport"), [("auto", SHM), ("tcp", TCP)])
async def test_kv_moves_while_the_prefill_goes_on(engines, make_reserve, setting, transport):
    a, b = engines
    random = np.random.default_rng(0)
    a.memory.array[:] = random.integers(1, 256, a.memory.array.shape, np.uint8)
    source, target = [3, 1, 4, 5, 9], [2, 7, 1, 8, 0]
    tasks = [asyncio.create_task(a.send_from()), asyncio.create_task(b.receive_into(target, setting))]
    a.machine = SendTransfer(
        "b", make_reserve(19, memory=a.memory.ref("local")), TransferLimits(message_bytes=1024), 0.0
    )
    a.carry_out(a.machine.start())
    for num_tokens in (6, 14):
        a.feed(BlocksReady(num_tokens, source[: -(-num_tokens // 4)]))
        await asyncio.sleep(0)
    a.feed(CommitRequested([7], 19, source, 0.0, None))
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(a.ended.wait(), b.ended.wait())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert a.endings == [ReleaseSource("t"), Completed("t", 19)]
    (adopt,) = b.endings
    assert (adopt.num_kept_tokens, adopt.blocks) == (19, target)
    assert f" {transport} " in repr(b.machine)
    np.testing.assert_array_equal(b.memory.array[target], a.memory.array[source])
