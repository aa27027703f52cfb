"""One contract for every transport: real memory, a sender in another process, real sockets."""

import subprocess
import sys
import zlib

import msgspec
import numpy as np
import pytest
import zmq

from kvtransfer.memory import KVBlocks, KVMemory, PeerMemories
from kvtransfer.protocol import SHM, TCP, ExportBlocks, ImportBlocks
from kvtransfer.transports import TransportError, choose, transports_of
from mesh.messages import Blocks, KVShape, MemoryRef

NUM_BLOCKS = 8

SENDER = """
import sys, msgspec, numpy as np, zmq
from kvtransfer.memory import KVMemory, PeerMemories
from kvtransfer.protocol import ExportBlocks
from kvtransfer.transports import transports_of
from mesh.messages import Blocks, KVShape

address, transport, checksum, shape = sys.argv[1:]
memory = KVMemory.alone(msgspec.json.decode(shape, type=KVShape), 8)
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
        done = transports_of(memory, PeerMemories(), checksum == "1")[transport].export_blocks(
            ExportBlocks("t", "s", transport, 0, blocks))
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
        self.socket.rcvtimeo = 20_000
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
        self.memory = KVMemory.alone(shape, NUM_BLOCKS)
        self.peers = PeerMemories()
        self.transport = transports_of(self.memory, self.peers, checksum=False)[transport]

    def take(self, peer, message, payload, destinations):
        job = ImportBlocks("t", "s", self.transport.name, "peer", peer.ref, message, payload, destinations)
        return self.transport.import_blocks(job).ok


@pytest.fixture(scope="module", params=[SHM, TCP])
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
    assert receiver.take(peer, message, payload, [1])
    np.testing.assert_array_equal(receiver.memory[1], content(receiver.memory)[4, 0])
    assert unmapped.take(peer, message, payload, [1]) == (transport == TCP)
    peer.close()


class TestSharedMemory:
    @pytest.fixture(scope="class")
    def transport(self):
        return SHM

    @pytest.fixture
    def peer(self, shape):
        peer = Peer(SHM, False, shape)
        yield peer
        peer.close()

    @pytest.fixture
    def receiver(self, shape):
        return Receiver(SHM, shape)

    def test_a_block_that_was_freed_and_reused_is_noticed(self, peer, receiver):
        message, _ = peer.export([1, 2])
        peer.reuse([2])
        assert not receiver.take(peer, message, [], [0, 1])
        assert receiver.take(peer, *peer.export([1, 2]), [0, 1])

    def test_a_block_that_is_reused_during_the_copy_is_noticed(self, peer, receiver, monkeypatch):
        message, _ = peer.export([1])
        answers = iter([True, False])
        monkeypatch.setattr(KVBlocks, "is_unchanged", lambda *_: next(answers))
        assert not receiver.take(peer, message, [], [0])

    def test_ids_that_make_no_sense_are_refused(self, peer, receiver):
        message, _ = peer.export([1])
        for changes in ({"source_blocks": [8]}, {"source_blocks": [-1]}, {"generations": []}, {"generations": [-1]}):
            assert not receiver.take(peer, msgspec.structs.replace(message, **changes), [], [0])

    def test_another_token_is_refused(self, peer, receiver):
        message, _ = peer.export([1])
        peer.ref = msgspec.structs.replace(peer.ref, token="00" * 16)
        assert not receiver.take(peer, message, [], [0])
        peer.ref = None
        assert not receiver.take(peer, message, [], [0])


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
        (frame,) = receiver.transport.export_blocks(ExportBlocks("t", "s", TCP, 0, [3])).payload
        assert frame.contiguous
        assert np.shares_memory(np.frombuffer(frame, np.uint8), receiver.memory[3])


REF = MemoryRef("local", "/proc/1/fd/1", 1, "")


@pytest.mark.parametrize(
    ("setting", "memory", "host", "can_open", "transport"),
    [
        ("auto", REF, "local", True, SHM),
        ("auto", REF, "local", False, TCP),
        ("auto", REF, "elsewhere", True, TCP),
        ("auto", None, "local", True, TCP),
        ("shm", REF, "local", True, SHM),
        ("tcp", REF, "local", True, TCP),
    ],
)
def test_the_fastest_transport_that_works_is_chosen(setting, memory, host, can_open, transport):
    assert choose(setting, memory, host, lambda _: can_open) == transport


@pytest.mark.parametrize("memory", [REF, None])
def test_demanding_the_impossible_is_refused(memory):
    with pytest.raises(TransportError, match="cannot be mapped here; use auto or tcp"):
        choose("shm", memory, "elsewhere", lambda _: True)
