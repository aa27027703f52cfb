"""The memories of peers: opened once, of the kind that is asked for, bounded, and dropped with their owners."""

import msgspec
import pytest

from kvtransfer.memory import KVMemory, MemoryUnreachableError
from kvtransfer.peer_memories import PeerMemories
from mesh.wire.transfers import DeviceRef, MemoryRef


@pytest.fixture
def refs(shape):
    memories = [KVMemory.alone(shape, 4) for _ in range(3)]
    yield [memory.ref("local") for memory in memories]
    for memory in memories:
        memory.close()


def test_a_memory_is_mapped_once(refs: list[MemoryRef]):
    peers = PeerMemories()
    assert peers.open("a", refs[0]) is peers.open("a", refs[0])
    assert peers.open("a", refs[1]) is not peers.open("a", refs[0])
    assert len(peers) == 2


def test_the_least_recently_used_goes_first(refs: list[MemoryRef]):
    peers = PeerMemories(max_peers=2)
    first, second = peers.open("a", refs[0]), peers.open("b", refs[1])
    peers.open("a", refs[0])
    peers.open("c", refs[2])
    assert len(peers) == 2
    assert peers.open("a", refs[0]) is first
    assert peers.open("b", refs[1]) is not second


def test_all_memories_of_a_process_that_died_are_dropped_and_no_other(refs: list[MemoryRef]):
    peers = PeerMemories()
    for peer, ref in zip(("a", "b", "a"), refs, strict=True):
        peers.open(peer, ref)
    peers.forget("a")
    assert repr(peers) == "<PeerMemories ['b']>"
    peers.forget("nobody")
    assert len(peers) == 1


@pytest.mark.parametrize("changes", [{"token": "00" * 16}, {"path": "/nowhere"}, {"size_bytes": 1}], ids=str)
def test_what_cannot_be_mapped_is_not_kept(refs: list[MemoryRef], changes: dict[str, object]):
    peers, wrong = PeerMemories(), msgspec.structs.replace(refs[0], **changes)
    with pytest.raises(MemoryUnreachableError):
        peers.open("a", wrong)
    assert not peers.can_open("a", wrong)
    assert len(peers) == 0
    assert peers.can_open("a", refs[0])


def test_memory_of_a_gpu_is_for_engines_with_one(refs: list[MemoryRef]):
    on_gpu = msgspec.structs.replace(refs[0], device=DeviceRef("a gpu", b"handle", has_nccl=False))
    with pytest.raises(MemoryUnreachableError, match="this engine has none"):
        PeerMemories().open("a", on_gpu)


def test_host_memory_is_no_gpu_memory(refs: list[MemoryRef]):
    peers = PeerMemories()
    assert peers.open_host("a", refs[0]) is peers.open("a", refs[0])
    with pytest.raises(MemoryUnreachableError, match="does not lie on a GPU"):
        peers.open_device("a", refs[0])
