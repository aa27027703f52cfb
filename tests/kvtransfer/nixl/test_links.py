"""Reads through NIXL, with a double of it: late ones, broken ones, and peers that are not who they say."""

import msgspec
import numpy as np
import pytest

from kvtransfer.gpu.device_memory import DeviceKVMemory, DeviceMemory
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from kvtransfer.nixl.agent import NixlError
from kvtransfer.nixl.links import NixlLimits, NixlLinks
from kvtransfer.nixl.transport import links_of
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import ExportBlocks, ImportBlocks
from kvtransfer.transports import transports_of
from mesh.transports import NIXL
from mesh.wire.transfers import Blocks
from tests.kvtransfer.fake_device import FakeDevice, World
from tests.kvtransfer.nixl.fake_agent import FakeAgent, Network

LIMITS = NixlLimits(slot_bytes=4096, num_slots=2, read_s=0.01, max_peers=2)


class End:
    """An engine's memory, of the host or of a GPU, its agent and its transport."""

    def __init__(self, network, name, shape, *, on_gpu=False, checksum=True, limits=LIMITS):
        layout = PageLayout.of([shape], 8)
        self.peers, self.name = PeerMemories(), name
        if on_gpu:
            device = FakeDevice(World(), has_nccl=False)
            self.paged = DeviceMemory(layout, device)
            self.memory = DeviceKVMemory(self.paged, shape)
            self.peers.equip(device, layout.page_bytes)
        else:
            self.paged = PagedMemory(layout)
            self.memory = KVMemory(self.paged, shape)
        self.agent = FakeAgent(network, self.paged.token)
        links = links_of(self.paged, self.agent)
        self.peers.nixl = self.links = NixlLinks(self.agent, links._segment, links._land, limits)
        self.transport = transports_of(self.memory, self.peers, lambda _: checksum)[NIXL]
        self.content = np.random.default_rng(len(name)).integers(0, 256, (len(self.memory), self.size), np.uint8)
        for block, row in enumerate(self.content):
            self.view(block)[:] = row

    @property
    def size(self):
        return self.memory.layout.block_bytes

    def view(self, block):
        if isinstance(self.memory, KVMemory):
            return self.memory[block]
        at = int(self.memory.offsets([block])[0])
        return self.memory.region.bytes[at : at + self.size]

    def export(self, blocks):
        done = self.transport.export_blocks(ExportBlocks("t", "s", NIXL, 0, blocks, "peer"))
        assert list(done.payload) == []
        return Blocks("t", 0, 0, len(blocks) * self.memory.layout.shape.block_size, blocks, *done_of(done))

    def take(self, source, message, destinations, ref=None):
        ref = ref or source.memory.ref("elsewhere")
        job = ImportBlocks("t", "s", NIXL, source.name, ref, message, (), destinations)
        return self.transport.import_blocks(job).ok

    def is_known(self, source):
        return source.paged.token in self.agent.peers


def done_of(done):
    return done.generations, done.checksums


@pytest.fixture
def network():
    return Network()


@pytest.fixture
def wide(shape):
    return msgspec.structs.replace(shape, head_dim=16)


@pytest.fixture
def ends(network, wide):
    return End(network, "source", wide), End(network, "target", wide)


@pytest.mark.parametrize("on_gpu", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_blocks_of_hosts_and_gpus_arrive_where_they_belong(network, wide, on_gpu):
    source, target = (End(network, name, wide, on_gpu=gpu) for name, gpu in zip(("of", "to"), on_gpu, strict=True))
    assert target.take(source, source.export([5, 0, 3]), [1, 7, 2])
    expected = target.content.copy()
    expected[[1, 7, 2]] = source.content[[5, 0, 3]]
    assert all((target.view(block) == row).all() for block, row in enumerate(expected))


def test_a_late_read_never_reaches_the_pool_and_holds_its_buffer_until_it_is_over(network, ends):
    source, target = ends
    message = source.export([1])
    assert target.take(source, message, [0])
    network.is_slow = True
    assert not target.take(source, message, [4])
    assert not target.take(source, message, [4]), "no other read of that peer begins"
    assert len(network.under_way) == 1
    assert (target.view(4) == target.content[4]).all()
    network.is_slow = False
    network.arrive()
    assert (target.view(4) == target.content[4]).all(), "it comes late, and to no block"
    assert target.take(source, message, [4])
    assert (target.view(4) == source.content[1]).all()


def test_late_reads_of_one_peer_do_not_hold_up_others_until_all_buffers_are_taken(network, ends, wide):
    target, sources = ends[1], [ends[0], *(End(network, name, wide) for name in ("b", "cc"))]
    messages = [source.export([1]) for source in sources]
    network.is_slow = True
    assert not target.take(sources[0], messages[0], [0])
    network.is_slow = False
    assert target.take(sources[1], messages[1], [0]), "by the other buffer"
    network.is_slow = True
    assert not target.take(sources[1], messages[1], [0])
    with pytest.raises(NixlError, match="late reads hold all landing buffers"), target.links.slot():
        pass
    network.arrive()
    network.is_slow = False
    assert target.take(sources[2], messages[2], [0])


def test_a_read_that_failed_is_over(network, ends):
    source, target = ends
    message = source.export([1])
    network.is_slow = True
    assert not target.take(source, message, [0])
    network.fail()
    network.is_slow = False
    assert target.take(source, message, [0])
    assert len(target.links._slots) == 1


def test_a_dead_peer_is_disconnected_once_no_read_of_it_is_late(network, ends):
    source, target = ends
    message = source.export([1])
    assert target.take(source, message, [0])
    network.is_slow = True
    assert not target.take(source, message, [0])
    target.peers.forget(source.name)
    assert target.is_known(source), "whether its read is over would not be known"
    network.fail()
    with target.links.slot():
        assert not target.is_known(source)
    target.peers.forget("nobody")


def test_agents_are_bounded(network, ends, wide):
    source, target = ends
    others = [End(network, name, wide) for name in ("b", "cc")]
    for one in (source, *others):
        assert target.take(one, one.export([1]), [0])
    assert [target.is_known(one) for one in (source, *others)] == [False, True, True]
    target.peers.forget("cc")
    assert [target.is_known(one) for one in others] == [True, False]


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": b"agent nobody"},
        {"metadata": b"\xff"},
        {"address": 0},
        {"pages_address": 0},
        {"kind": "VRAM"},
    ],
    ids=str,
)
def test_refs_that_make_no_sense_are_refused(ends, changes):
    source, target = ends
    ref = source.memory.ref("elsewhere")
    wrong = msgspec.structs.replace(ref, nixl=msgspec.structs.replace(ref.nixl, **changes))
    assert not target.take(source, source.export([1]), [0], wrong)


def test_another_memory_than_is_meant_is_refused(network, ends, wide):
    source, target = ends
    other, message = End(network, "other", wide), source.export([1])
    ref = source.memory.ref("elsewhere")
    for wrong in (
        msgspec.structs.replace(ref, token=other.paged.token),
        msgspec.structs.replace(ref, size_bytes=1),
        msgspec.structs.replace(ref, nixl=None),
    ):
        assert not target.take(source, message, [0], wrong)
    assert target.take(source, message, [0])


def test_more_than_a_message_brings_is_refused(ends, wide):
    source, target = ends
    most = LIMITS.slot_bytes // source.size
    blocks = [block % 8 for block in range(most + 1)]
    assert not target.take(source, source.export(blocks), blocks)
    assert target.take(source, source.export(blocks[1:]), list(range(most)))
