import os
import signal
import subprocess
import sys

import msgspec
import numpy as np
import pytest

from kvtransfer.memory import KVMemory, MemoryUnreachableError, PeerMemory
from kvtransfer.peer_memories import PeerMemories
from mesh.wire.transfers import MemoryRef

HOLDER = """
import sys, msgspec
from kvtransfer.memory import KVMemory
from mesh.wire.transfers import KVShape
memory = KVMemory.alone(msgspec.json.decode(sys.argv[1], type=KVShape), 4)
memory[2] = 42
memory.reuse(2)
print(msgspec.json.encode(memory.ref("local")).decode(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def memory(shape):
    memory = KVMemory.alone(shape, 4)
    yield memory
    memory.close()


@pytest.fixture
def holder(shape):
    """Another process with a pool of four blocks: the process and the pool's ref."""
    arguments = [sys.executable, "-c", HOLDER, msgspec.json.encode(shape).decode()]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process, msgspec.json.decode(process.stdout.readline(), type=MemoryRef)
        process.kill()


def test_blocks_are_writable_aligned_and_zeroed(memory):
    assert memory.array.shape == (4, 1, memory.layout.block_bytes)
    assert not memory.array.any()
    assert all(memory[block].ctypes.data % 64 == 0 for block in range(4))
    memory[3] = 7
    assert memory[3].all()
    assert not memory[2].any()


def test_another_process_reads_what_its_owner_wrote(holder, shape):
    _, ref = holder
    pool = PeerMemory(ref).blocks(shape)
    assert (pool[2] == 42).all()
    assert pool.generations(range(4)) == [0, 0, 1, 0]
    assert pool.is_unchanged([1, 2], [0, 1])
    assert not pool.is_unchanged([1, 2], [0, 0])


def test_a_peer_cannot_write(holder, shape):
    _, ref = holder
    with pytest.raises(ValueError, match="read-only"):
        PeerMemory(ref).blocks(shape)[0] = 1


def test_a_pool_outlives_its_killed_owner_while_mapped_and_then_is_gone(holder, shape):
    process, ref = holder
    pool = PeerMemory(ref).blocks(shape)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (pool[2] == 42).all()
    with pytest.raises(MemoryUnreachableError, match="cannot open"):
        PeerMemory(ref)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token": "00" * 16}, "is another memory than the peer means"),
        ({"size_bytes": 4096}, "has .* bytes, the peer's pool 4096"),
        ({"size_bytes": -1}, "-1 bytes hold no pool"),
        ({"path": "/dev/null"}, "the peer's pool"),
        ({"path": "/proc/1/fd/no-such-fd"}, "cannot open"),
        ({"path": "/tmp/\0"}, "cannot open"),
    ],
)
def test_memory_that_is_not_the_peers_is_refused(memory, changes, message):
    ref = memory.ref("local")
    with pytest.raises(MemoryUnreachableError, match=message):
        PeerMemory(msgspec.structs.replace(ref, **changes))


def test_a_fifo_is_refused_without_waiting(tmp_path, memory):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(MemoryUnreachableError, match="has 0 bytes"):
        PeerMemory(msgspec.structs.replace(memory.ref("local"), path=str(tmp_path / "fifo")))


def test_a_closed_pool_lets_nobody_in_and_keeps_its_arrays(memory):
    ref = memory.ref("local")
    memory.close()
    memory.close()
    with pytest.raises(MemoryUnreachableError):
        PeerMemory(ref)
    assert not memory.array.any()


def test_without_memory_files_a_temporary_file_serves(shape, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    memory = KVMemory.alone(shape, 4)
    ref = memory.ref("local")
    memory[1] = 9
    assert (PeerMemory(ref).blocks(shape)[1] == 9).all()
    memory.close()
    assert not os.path.exists(ref.path)


def test_peers_are_mapped_once_and_bounded(shape):
    memories = [KVMemory.alone(shape, 1) for _ in range(3)]
    refs = [memory.ref("local") for memory in memories]
    peers = PeerMemories(max_peers=2)
    first = peers.open("a", refs[0])
    assert peers.open("a", refs[0]) is first
    for name, ref in zip("bc", refs[1:], strict=True):
        peers.open(name, ref)
    assert len(peers) == 2
    assert peers.open("a", refs[0]) is not first
    peers.forget("a")
    assert len(peers) == 1
    assert peers.can_open("c", refs[2])
    assert not peers.can_open("c", msgspec.structs.replace(refs[2], token="ff"))
    for memory in memories:
        memory.close()


def test_a_forgotten_pool_stays_mapped_until_its_reader_is_done(shape):
    memory, peers = KVMemory.alone(shape, 1), PeerMemories()
    memory[0] = 5
    blocks = peers.open("a", memory.ref("local")).blocks(shape)
    peers.forget("a")
    memory.close()
    assert np.all(blocks[0] == 5)
