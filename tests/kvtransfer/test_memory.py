import os
import signal
import subprocess
import sys

import msgspec
import numpy as np
import pytest

from kvtransfer.layout import KVLayout
from kvtransfer.memory import KVMemory, MemoryUnreachableError, PeerMemories, PeerMemory
from mesh.messages import MemoryRef

HOLDER = """
import sys, msgspec
from kvtransfer.layout import KVLayout
from kvtransfer.memory import KVMemory
from mesh.messages import KVShape
memory = KVMemory(KVLayout(msgspec.json.decode(sys.argv[1], type=KVShape), 4))
memory.blocks[2] = 42
memory.bump(2)
print(msgspec.json.encode(memory.ref("local")).decode(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def memory(shape):
    memory = KVMemory(KVLayout(shape, 4))
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
    assert memory.blocks.shape == (4, memory.layout.block_bytes)
    assert not memory.blocks.any()
    assert all(memory.blocks[block].ctypes.data % 64 == 0 for block in range(4))
    memory.blocks[3] = 7
    assert memory.blocks[3].all()
    assert not memory.blocks[2].any()


def test_another_process_reads_what_its_owner_wrote(holder):
    _, ref = holder
    pool = PeerMemory(ref)
    assert (pool.blocks[2] == 42).all()
    assert pool.generations.tolist() == [0, 0, 1, 0]
    assert pool.is_unchanged([1, 2], [0, 1])
    assert not pool.is_unchanged([1, 2], [0, 0])


def test_a_peer_cannot_write(holder):
    _, ref = holder
    with pytest.raises(ValueError, match="read-only"):
        PeerMemory(ref).blocks[0] = 1


def test_a_pool_outlives_its_killed_owner_while_mapped_and_then_is_gone(holder):
    process, ref = holder
    pool = PeerMemory(ref)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (pool.blocks[2] == 42).all()
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
    assert not memory.blocks.any()


def test_without_memory_files_a_temporary_file_serves(shape, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    memory = KVMemory(KVLayout(shape, 4))
    ref = memory.ref("local")
    memory.blocks[1] = 9
    assert (PeerMemory(ref).blocks[1] == 9).all()
    memory.close()
    assert not os.path.exists(ref.path)


def test_peers_are_mapped_once_and_bounded(shape):
    memories = [KVMemory(KVLayout(shape, 1)) for _ in range(3)]
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
    memory, peers = KVMemory(KVLayout(shape, 1)), PeerMemories()
    memory.blocks[0] = 5
    blocks = peers.open("a", memory.ref("local")).blocks
    peers.forget("a")
    memory.close()
    assert np.all(blocks == 5)
