"""One contract for every transport: real memory, a sender in another process, real sockets, and NIXL where it is."""

import importlib.util
import subprocess
import sys
import zlib

import msgspec
import numpy as np
import pytest
import zmq

from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVBlocks, KVMemory, PagedMemory
from kvtransfer.nixl.links import AgentBlocks
from kvtransfer.nixl.transport import open_nixl
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import SHM, TCP, ExportBlocks, ImportBlocks
from kvtransfer.transports import transports_of
from mesh.transports import NIXL
from mesh.wire.transfers import Blocks, KVShape, MemoryRef
from tests.seeds import each_seed

NUM_BLOCKS = 8

SENDER = """
import sys, msgspec, numpy as np, zmq
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from kvtransfer.nixl.transport import open_nixl
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import ExportBlocks
from kvtransfer.transports import transports_of
from mesh.wire.transfers import Blocks, KVShape

address, transport, checksum, shape = sys.argv[1:]
shape = msgspec.json.decode(shape, type=KVShape)
paged = PagedMemory(PageLayout.of([shape], 8))
memory, peers = KVMemory(paged, shape), PeerMemories()
if transport == "nixl":
    peers.nixl = open_nixl(paged)
memory.array[:] = np.random.default_rng(0).integers(0, 256, memory.array.shape, np.uint8)
socket = zmq.Context().socket(zmq.PAIR)
socket.connect(address)
socket.send(msgspec.json.encode(memory.ref("local")))
while True:
    command, *blocks = msgspec.json.decode(socket.recv())
    if command == "reuse":
        for block in blocks:
            memory.reuse(block)
            memory[block] = 0
        socket.send(b"")
    else:
        done = transports_of(memory, peers, lambda _: checksum == "1")[transport].export_blocks(
            ExportBlocks("t", "s", transport, 0, blocks, "peer"))
        body = Blocks("t", 0, 0, len(blocks) * memory.layout.shape.block_size, blocks, done.generations, done.checksums)
        socket.send_multipart([msgspec.msgpack.encode(body), *done.payload], copy=False)
"""


def content(memory):
    return np.random.default_rng(0).integers(0, 256, memory.array.shape, np.uint8)


class Peer:
    """A sender process and what a receiver knows of it."""

    def __init__(self, transport: str, checksum: bool, shape: KVShape) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PAIR)
        self.socket.linger = 0
        self.socket.rcvtimeo = 60_000
        port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        encoded = msgspec.json.encode(shape).decode()
        arguments = [f"tcp://127.0.0.1:{port}", transport, str(int(checksum)), encoded]
        self.process = subprocess.Popen([sys.executable, "-c", SENDER, *arguments])
        self.ref = msgspec.json.decode(self.socket.recv(), type=MemoryRef)

    def export(self, blocks):
        self.socket.send(msgspec.json.encode(["export", *blocks]))
        body, *payload = self.socket.recv_multipart(copy=False)
        return msgspec.msgpack.decode(body.buffer, type=Blocks), [frame.buffer for frame in payload]

    def reuse(self, blocks):
        self.socket.send(msgspec.json.encode(["reuse", *blocks]))
        self.socket.recv()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self.socket.close()
        self.context.term()


class Receiver:
    def __init__(self, transport: str, shape: KVShape) -> None:
        paged = PagedMemory(PageLayout.of([shape], NUM_BLOCKS))
        self.memory, self.peers = KVMemory(paged, shape), PeerMemories()
        if transport == NIXL:
            self.peers.nixl = open_nixl(paged)
        self.transport = transports_of(self.memory, self.peers, lambda _: False)[transport]

    def take(self, peer, message, payload, destinations):
        job = ImportBlocks("t", "s", self.transport.name, "peer", peer.ref, message, payload, destinations)
        return self.transport.import_blocks(job).ok


WITH_NIXL = pytest.param(
    NIXL, marks=pytest.mark.skipif(importlib.util.find_spec(NIXL) is None, reason="the package nixl is not installed")
)


@pytest.fixture(scope="module", params=[SHM, TCP, WITH_NIXL])
def transport(request):
    return request.param


# One block below and one above the size from which ZeroMQ sends without a copy.
@pytest.fixture(scope="module", params=[8, 1024], ids=["small", "large"])
def big_shape(request, shape):
    return msgspec.structs.replace(shape, head_dim=8 * request.param)


@pytest.fixture(scope="module")
def peer(transport, big_shape):
    peer = Peer(transport, True, big_shape)
    yield peer
    peer.close()


@pytest.fixture
def receiver(transport, big_shape):
    receiver = Receiver(transport, big_shape)
    yield receiver
    receiver.memory.close()


@pytest.mark.parametrize("blocks", [[3], [0, 1, 2], [7, 2, 5, 1]])
def test_blocks_arrive_where_they_belong_and_nowhere_else(peer, receiver, blocks):
    peer_blocks, destinations = blocks, [(block + 3) % NUM_BLOCKS for block in blocks]
    message, payload = peer.export(peer_blocks)
    assert receiver.take(peer, message, payload, destinations)
    expected = np.zeros_like(receiver.memory.array)
    expected[destinations] = content(receiver.memory)[peer_blocks]
    np.testing.assert_array_equal(receiver.memory.array, expected)


def test_a_wrong_checksum_is_noticed(peer, receiver):
    message, payload = peer.export([1, 2])
    assert message.checksums == [zlib.crc32(block) for block in content(receiver.memory)[[1, 2]]]
    swapped = msgspec.structs.replace(message, checksums=message.checksums[::-1])
    assert not receiver.take(peer, swapped, payload, [0, 1])
    shortened = msgspec.structs.replace(message, checksums=message.checksums[:1])
    assert not receiver.take(peer, shortened, payload, [0, 1])


def test_blocks_of_another_size_are_refused(peer, transport, shape):
    receiver = Receiver(transport, msgspec.structs.replace(shape, head_dim=16))
    assert not receiver.take(peer, *peer.export([1]), [0])
    receiver.memory.close()


def test_the_checksum_is_optional_and_killed_senders_are_survived(transport, shape):
    peer, receiver = Peer(transport, False, shape), Receiver(transport, shape)
    message, payload = peer.export([4])
    assert message.checksums == []
    unmapped = Receiver(transport, shape)
    assert receiver.take(peer, message, payload, [0])
    peer.kill()
    assert receiver.take(peer, message, payload, [1]) == (transport != NIXL), "a dead process answers no agent"
    if transport != NIXL:
        np.testing.assert_array_equal(receiver.memory[1], content(receiver.memory)[4, 0])
    assert unmapped.take(peer, message, payload, [1]) == (transport == TCP)
    peer.close()


class TestReceiversThatPull:
    @pytest.fixture(scope="class", params=[SHM, WITH_NIXL])
    @classmethod
    def transport(cls, request):
        return request.param

    @pytest.fixture(scope="class")
    @classmethod
    def peer(cls, transport, shape):
        peer = Peer(transport, False, shape)
        yield peer
        peer.close()

    @pytest.fixture
    def receiver(self, transport, shape):
        return Receiver(transport, shape)

    def test_a_block_that_was_freed_and_reused_is_noticed(self, peer, receiver):
        message, _ = peer.export([1, 2])
        peer.reuse([2])
        assert not receiver.take(peer, message, [], [0, 1])
        assert receiver.take(peer, *peer.export([1, 2]), [0, 1])

    def test_a_block_that_is_reused_during_the_copy_is_noticed(self, peer, receiver, monkeypatch):
        message, _ = peer.export([1])
        answers = iter([True, False])
        for blocks in (KVBlocks, AgentBlocks):
            monkeypatch.setattr(blocks, "is_unchanged", lambda *_: next(answers))
        assert not receiver.take(peer, message, [], [0])

    def test_ids_that_make_no_sense_are_refused(self, peer, receiver):
        message, _ = peer.export([1])
        for changes in ({"source_blocks": [8]}, {"source_blocks": [-1]}, {"generations": []}, {"generations": [-1]}):
            assert not receiver.take(peer, msgspec.structs.replace(message, **changes), [], [0])

    def test_another_token_is_refused(self, peer, receiver):
        message, _ = peer.export([1])
        ref = peer.ref
        for wrong in (msgspec.structs.replace(ref, token="00" * 16), None):
            peer.ref = wrong
            assert not receiver.take(peer, message, [], [0])
        peer.ref = ref
        assert receiver.take(peer, message, [], [0])


class TestTcp:
    @pytest.fixture
    def receiver(self, shape):
        return Receiver(TCP, shape)

    @pytest.fixture
    def message(self, receiver):
        data = content(receiver.memory)[:2]
        return Blocks("t", 0, 0, 8, [0, 1], [0, 0], [zlib.crc32(block) for block in data])

    @pytest.mark.parametrize(
        "damage",
        [
            lambda frames: frames[:1],
            lambda frames: [*frames, frames[0]],
            lambda frames: [frames[0], frames[1][:-1]],
            lambda frames: [frames[0], b""],
            lambda frames: frames[::-1],
            lambda frames: [frames[0], bytes([frames[1][0] ^ 1]) + frames[1][1:]],
        ],
        ids=["missing", "surplus", "truncated", "empty", "swapped", "flipped bit"],
    )
    def test_damaged_payload_is_noticed(self, receiver, message, damage):
        class NoMemory:
            ref = None

        frames = [block.tobytes() for block in content(receiver.memory)[:2]]
        assert receiver.take(NoMemory, message, frames, [0, 1])
        assert not receiver.take(NoMemory, message, damage(frames), [0, 1])

    def test_payload_is_a_view_of_the_pool(self, receiver):
        receiver.memory[3] = 9
        (frame,) = receiver.transport.export_blocks(ExportBlocks("t", "s", TCP, 0, [3], "peer")).payload
        assert frame.contiguous
        assert np.shares_memory(np.frombuffer(frame, np.uint8), receiver.memory[3])


@pytest.mark.parametrize("name", [SHM, TCP])
@each_seed(range(5))
def test_engines_with_other_pages_exchange_blocks(shape, name, seed):
    """Each shares its memory with services that the other does not have; blocks travel by their own bytes."""
    dice = np.random.default_rng(seed)
    large = msgspec.structs.replace(shape, num_layers=11, num_kv_heads=3)
    huge = msgspec.structs.replace(shape, num_layers=7, num_kv_heads=5, head_dim=24)
    source, target = (PagedMemory(PageLayout.of(shapes, 6)) for shapes in ([shape, large], [huge, shape]))
    assert len({source.layout.page_bytes, target.layout.page_bytes}) == 2
    sent, received = KVMemory(source, shape), KVMemory(target, shape)
    assert 1 < sent.layout.slots < received.layout.slots or 1 < received.layout.slots < sent.layout.slots
    source.pages[:], target.pages[:] = 1, 2
    blocks = dice.choice(len(sent), 5, replace=False).tolist()
    destinations = dice.choice(len(received), 5, replace=False).tolist()
    for block in blocks:
        sent[block] = dice.integers(3, 256, sent.layout.block_bytes, np.uint8)
    exported = transports_of(sent, PeerMemories(), lambda _: True)[name].export_blocks(
        ExportBlocks("t", "s", name, 0, blocks, "peer")
    )
    message = Blocks("t", 0, 0, 5 * shape.block_size, blocks, exported.generations, exported.checksums)
    job = ImportBlocks("t", "s", name, "peer", sent.ref("here"), message, exported.payload, destinations)
    transport = transports_of(received, PeerMemories(), lambda _: True)[name]
    assert transport.import_blocks(job).ok
    assert [received[block].tobytes() for block in destinations] == [sent[block].tobytes() for block in blocks]
    assert np.count_nonzero(target.pages != 2) == 5 * sent.layout.block_bytes, "something else was written to"
    for memory in (source, target):
        memory.close()


def test_a_page_that_changed_hands_is_noticed_whichever_block_is_copied(shape):
    """Another service's one block lies over all that this one had there."""
    large = msgspec.structs.replace(shape, num_layers=11, num_kv_heads=3)
    memory = PagedMemory(PageLayout.of([shape, large], 2))
    small, other, peer = KVMemory(memory, shape), KVMemory(memory, large), KVMemory.alone(shape, 1)
    transport, receiver = (transports_of(each, PeerMemories(), lambda _: False)[SHM] for each in (small, peer))
    for block in range(len(small)):
        exported = transport.export_blocks(ExportBlocks("t", "s", SHM, 0, [block], "peer"))
        message = Blocks("t", 0, 0, shape.block_size, [block], exported.generations, [])
        job = ImportBlocks("t", "s", SHM, "peer", small.ref("here"), message, (), [0])
        assert receiver.import_blocks(job).ok
        other.take_page(block // small.layout.slots)
        assert not receiver.import_blocks(job).ok
    memory.close()
    peer.close()


def test_pages_that_were_not_made_for_a_service_are_refused(shape):
    large = msgspec.structs.replace(shape, num_layers=11, num_kv_heads=3)
    peer, here = KVMemory.alone(shape, 2), KVMemory.alone(large, 2)
    job = ImportBlocks("t", "s", SHM, "peer", peer.ref("here"), Blocks("t", 0, 0, 4, [0], [0], []), (), [0])
    assert not transports_of(here, PeerMemories(), lambda _: False)[SHM].import_blocks(job).ok
    for memory in (peer, here):
        memory.close()
