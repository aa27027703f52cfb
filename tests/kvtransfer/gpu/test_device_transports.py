"""Memory on GPUs and its transports, over a double of the device (`fake_device`)."""

import itertools
import time

import msgspec
import numpy as np
import pytest

from kvtransfer.gpu.device_memory import PAGES_AT, DeviceKVMemory, DeviceMemory
from kvtransfer.gpu.nccl import NcclLimits, NcclLinks
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, MemoryUnreachableError, PagedMemory
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import ExportBlocks, ImportBlocks
from kvtransfer.transports import TransportError, choose, transports_of
from mesh.transports import CUDA_IPC, NCCL, SHM, TCP
from mesh.wire.transfers import Blocks, MemoryRef
from tests.kvtransfer.fake_device import FakeDevice, World

PAGES = 6


@pytest.fixture(params=[0.0, 0.002], ids=["prompt", "slow streams"])
def world(request):
    return World(delay_s=request.param)


class End:
    """An engine's memory, on a GPU of ``world`` or on the host, and its transports."""

    def __init__(self, name, shapes, world=None, *, checksum=False, has_nccl=True, gpu="gpu-0", limits=None):
        layout = PageLayout.of(shapes, PAGES)
        self.name, self.peers, self.device = name, PeerMemories(), None
        if world is None:
            self.paged = PagedMemory(layout)
            self.memory = KVMemory(self.paged, shapes[0])
        else:
            self.device = FakeDevice(world, gpu, has_nccl)
            self.paged = DeviceMemory(layout, self.device)
            self.memory = DeviceKVMemory(self.paged, shapes[0])
            self.peers.equip(self.device, layout.page_bytes)
            if has_nccl:
                self.peers.links = NcclLinks(self.device, limits or NcclLimits(1 << 20, watch_s=0.01, retry_s=0.0))
        self.transports = transports_of(self.memory, self.peers, lambda _: checksum)
        self.numbers = itertools.count()

    @property
    def size(self):
        return self.memory.layout.block_bytes

    def bytes_of(self, block):
        if self.device is None:
            return self.memory[block].tobytes()
        at = int(self.memory.offsets([block])[0])
        return self.memory.region.bytes[at : at + self.size].tobytes()

    def fill(self, seed):
        dice = np.random.default_rng(seed)
        pages = self.memory.array if self.device is None else self.memory.region.bytes[PAGES_AT:]
        pages[:] = dice.integers(0, 256, pages.shape, np.uint8)

    def export(self, transport, blocks, to):
        done = self.transports[transport].export_blocks(
            ExportBlocks("t", "s", transport, next(self.numbers), blocks, to.name)
        )
        tokens = len(blocks) * self.memory.layout.shape.block_size
        message = Blocks("t", done.seq, 0, tokens, blocks, done.generations, done.checksums)
        return message, [bytes(memoryview(frame)) for frame in done.payload]

    def take(self, transport, source, exported, blocks, ref=None):
        message, payload = exported
        ref = ref or source.memory.ref("here")
        job = ImportBlocks("t", "s", transport, source.name, ref, message, payload, blocks)
        return self.transports[transport].import_blocks(job).ok


@pytest.fixture
def shapes(shape):
    shape = msgspec.structs.replace(shape, head_dim=16)
    large = msgspec.structs.replace(shape, num_layers=11, num_kv_heads=3)
    huge = msgspec.structs.replace(shape, num_layers=7, num_kv_heads=5, head_dim=24)
    return shape, large, huge


PATHS = {
    CUDA_IPC: (True, True),
    NCCL: (True, True),
    SHM: (False, True),
    "tcp from a GPU": (True, False),
    "tcp to a GPU": (False, True),
    "tcp between GPUs": (True, True),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", range(4))
def test_blocks_arrive_where_they_belong_and_nowhere_else(world, shapes, path, seed):
    """Both ends share their pages with services that the other does not have."""
    transport, dice = path.partition(" ")[0], np.random.default_rng(seed)
    worlds = [world if on_gpu else None for on_gpu in PATHS[path]]
    source = End("source", [shapes[0], shapes[1]], worlds[0], checksum=seed % 2 == 1)
    target = End("target", [shapes[0], shapes[2]], worlds[1], gpu="gpu-1")
    source.fill(seed), target.fill(seed + 100)
    before = {block: target.bytes_of(block) for block in range(len(target.memory))}
    for _ in range(3):
        blocks = dice.choice(len(source.memory), 5, replace=False).tolist()
        destinations = dice.choice(len(target.memory), 5, replace=False).tolist()
        assert target.take(transport, source, source.export(transport, blocks, target), destinations)
        before |= dict(zip(destinations, map(source.bytes_of, blocks), strict=True))
        assert {block: target.bytes_of(block) for block in before} == before
    assert (transport != CUDA_IPC) or target.device.num_copies == 3, "one kernel a message"


@pytest.mark.parametrize("path", PATHS)
def test_a_wrong_checksum_is_noticed(shapes, path):
    world = World()
    worlds = [world if on_gpu else None for on_gpu in PATHS[path]]
    transport = path.partition(" ")[0]
    source = End("source", shapes[:1], worlds[0], checksum=True)
    target = End("target", shapes[:1], worlds[1], gpu="gpu-1")
    source.fill(1)
    message, payload = source.export(transport, [1, 2], target)
    swapped = msgspec.structs.replace(message, checksums=message.checksums[::-1])
    assert not target.take(transport, source, (swapped, payload), [0, 1])


class TestCudaIpc:
    @pytest.fixture
    def ends(self, world, shapes):
        source, target = End("source", shapes[:1], world), End("target", shapes[:1], world)
        source.fill(3)
        return source, target

    def test_a_block_that_is_reused_before_or_during_the_copy_is_noticed(self, ends):
        source, target = ends
        exported = source.export(CUDA_IPC, [1, 2], target)
        source.memory.reuse(2)
        assert not target.take(CUDA_IPC, source, exported, [0, 1])
        exported = source.export(CUDA_IPC, [1, 2], target)
        target.device.copied = lambda: source.memory.reuse(1)
        assert not target.take(CUDA_IPC, source, exported, [0, 1])
        target.device.copied = lambda: None
        assert target.take(CUDA_IPC, source, source.export(CUDA_IPC, [1, 2], target), [0, 1])

    def test_a_handle_is_opened_once_and_closed_when_the_peer_is_forgotten(self, ends):
        source, target = ends
        for _ in range(3):
            assert target.take(CUDA_IPC, source, source.export(CUDA_IPC, [1], target), [0])
        (opened,) = target.device.opened
        assert opened.is_open
        target.peers.forget("source")
        assert not opened.is_open

    def test_a_memory_that_is_forgotten_during_a_copy_is_closed_after_it(self, ends):
        source, target = ends
        open_meanwhile = []

        def forget():
            target.peers.forget("source")
            open_meanwhile.append(target.device.opened[0].is_open)

        target.device.copied = forget
        assert target.take(CUDA_IPC, source, source.export(CUDA_IPC, [1], target), [0])
        assert open_meanwhile == [True]
        assert not target.device.opened[0].is_open

    def test_a_handle_of_other_memory_is_refused(self, ends, world, shapes):
        """As after a restart under the same process id: the path is right, the handle is of the life before."""
        source, target = ends
        other = End("other", shapes[:1], world)
        right, wrong = source.memory.ref("here"), other.memory.ref("here")
        mixed = msgspec.structs.replace(right, device=wrong.device)
        exported = source.export(CUDA_IPC, [1], target)
        assert not target.take(CUDA_IPC, source, exported, [0], mixed)
        unknown = msgspec.structs.replace(right.device, handle=b"\0" * 64)
        assert not target.take(CUDA_IPC, source, exported, [0], msgspec.structs.replace(right, device=unknown))
        assert not any(region.is_open for region in target.device.opened)
        assert target.take(CUDA_IPC, source, exported, [0])

    def test_a_restart_under_the_same_path_is_another_memory(self, ends, world, shapes):
        source, target = ends
        exported = source.export(CUDA_IPC, [1], target)
        assert target.take(CUDA_IPC, source, exported, [0])
        stale = source.memory.ref("here")
        reborn = End("source", shapes[:1], world)
        fresh = msgspec.structs.replace(reborn.memory.ref("here"))
        with pytest.raises(MemoryUnreachableError, match="another memory"):
            PeerMemories_of(target).open("source", msgspec.structs.replace(stale, path=fresh.path))
        reborn.fill(9)
        assert target.take(CUDA_IPC, reborn, reborn.export(CUDA_IPC, [1], target), [0])
        assert target.bytes_of(0) == reborn.bytes_of(1)

    def test_a_dead_peers_memory_cannot_be_opened(self, ends, world):
        source, target = ends
        exported = source.export(CUDA_IPC, [1], target)
        world.die(source.device)
        assert not target.take(CUDA_IPC, source, exported, [0])

    def test_ids_that_make_no_sense_are_refused(self, ends):
        source, target = ends
        message, _ = source.export(CUDA_IPC, [1], target)
        for changes in ({"source_blocks": [999]}, {"source_blocks": [-1]}, {"generations": []}, {"generations": [-1]}):
            assert not target.take(CUDA_IPC, source, (msgspec.structs.replace(message, **changes), []), [0])

    def test_a_page_that_gets_another_dtype_is_zeros_before_it_is_used(self, world, shapes):
        end = End("end", shapes[:1], world)
        half = DeviceKVMemory(end.paged, msgspec.structs.replace(shapes[0], dtype="bfloat16", num_layers=4))
        end.fill(5)
        end.memory.take_page(2)
        assert end.memory.region.bytes[PAGES_AT:].all(axis=None) or end.memory.region.bytes[PAGES_AT:].any()
        half.take_page(2)
        size = end.paged.layout.page_bytes
        pages = end.memory.region.bytes[PAGES_AT:].reshape(-1, size)
        assert not pages[2].any()
        assert pages[1].any()
        assert pages[3].any()


def PeerMemories_of(end):
    peers = PeerMemories()
    peers.equip(end.device, end.paged.layout.page_bytes)
    return peers


def test_an_engine_without_a_gpu_says_so(shapes):
    source, target = End("source", shapes[:1], World()), End("target", shapes[:1])
    with pytest.raises(MemoryUnreachableError, match="lies on a GPU, and this engine has none"):
        target.peers.open("source", source.memory.ref("here"))
    assert not target.take(SHM, source, source.export(SHM, [1], target), [0])


# --- choice -----------------------------------------------------------------------------------------------------------


def ref(host="here", gpu=None, **device):
    from mesh.wire.transfers import DeviceRef

    there = None if gpu is None else DeviceRef(gpu, b"", **{"has_nccl": True} | device)
    return MemoryRef(host, "/proc/1/fd/1", 1, "", there)


A, B = ref(gpu="a"), ref(gpu="b")


@pytest.mark.parametrize(
    ("setting", "memory", "here", "can_open", "transport"),
    [
        ("auto", A, B, True, CUDA_IPC),
        ("auto", A, A, True, CUDA_IPC),
        ("auto", A, B, False, NCCL),
        ("auto", ref("there", "a"), B, True, NCCL),
        ("auto", ref("there", "a", has_nccl=False), B, True, TCP),
        ("auto", A, A, False, TCP),
        ("auto", ref(gpu="a", allows_two_ranks=True), ref(gpu="a", allows_two_ranks=True), False, NCCL),
        ("auto", ref(), A, True, SHM),
        ("auto", A, ref(), True, TCP),
        ("auto", ref("there"), A, True, TCP),
        ("nccl", A, B, True, NCCL),
        ("cuda-ipc", A, B, True, CUDA_IPC),
        ("shm", ref(), A, True, SHM),
        ("tcp", A, B, True, TCP),
    ],
)
def test_the_fastest_transport_that_works_is_chosen(setting, memory, here, can_open, transport):
    assert choose(setting, memory, "here", lambda _: can_open, here) == transport


@pytest.mark.parametrize(
    ("setting", "memory", "here", "can_open", "reason"),
    [
        ("cuda-ipc", A, ref(), True, "not both engines keep their KV on a GPU"),
        ("cuda-ipc", ref("there", "a"), B, True, "two hosts"),
        ("cuda-ipc", A, B, False, "cannot be mapped here"),
        ("nccl", ref(), B, True, "not both engines keep their KV on a GPU"),
        ("nccl", ref(gpu="a", has_nccl=False), B, True, "the extra gpu brings it"),
        ("nccl", A, A, True, "NCCL_MULTI_RANK_GPU_ENABLE=1"),
        ("shm", A, B, True, "lies on a GPU"),
        ("shm", None, B, True, "cannot be mapped here"),
    ],
)
def test_demanding_the_impossible_is_refused_with_the_reason(setting, memory, here, can_open, reason):
    with pytest.raises(TransportError, match=reason):
        choose(setting, memory, "here", lambda _: can_open, here)


# --- nccl -------------------------------------------------------------------------------------------------------------


def until(condition, patience_s=10.0):
    ends = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.002)


def exchange(source, target, blocks=(1, 2), destinations=(0, 3)):
    """One message: whether it came, and whether it came by NCCL."""
    message, payload = source.export(NCCL, list(blocks), target)
    ok = target.take(NCCL, source, (message, payload), list(destinations))
    if ok:
        assert [target.bytes_of(block) for block in destinations] == [source.bytes_of(block) for block in blocks]
    return ok, len(payload) == 1


def connected(source, target):
    """Exchange until a message comes by NCCL; all of them come."""

    def is_by_nccl():
        ok, is_direct = exchange(source, target)
        assert ok
        return is_direct

    until(is_by_nccl)


class TestNccl:
    @pytest.fixture
    def make(self, shapes):
        world = World()
        ends = []

        def make(name, **limits):
            limits = NcclLimits(1 << 20, **{"watch_s": 0.01, "retry_s": 0.0} | limits)
            end = End(name, shapes[:1], world, gpu=name, limits=limits)
            end.fill(len(ends))
            ends.append(end)
            return end

        make.world = world
        yield make
        for end in ends:
            end.peers.links.close()

    def test_the_first_messages_bring_their_bytes_and_later_ones_come_by_nccl(self, make):
        source, target = make("a"), make("b")
        assert exchange(source, target) == (True, False)
        connected(source, target)
        for _ in range(20):
            assert exchange(source, target) == (True, True)
        assert len(source.device.communicators) == len(target.device.communicators) == 1

    def test_blocks_may_change_once_they_are_exported(self, make):
        source, target = make("a"), make("b")
        connected(source, target)
        make.world.delay_s = 0.01
        expected = source.bytes_of(1)
        exported = source.export(NCCL, [1], target)
        source.fill(77)
        assert target.take(NCCL, source, exported, [0])
        assert target.bytes_of(0) == expected

    def test_both_sides_may_start_at_once(self, make):
        ends = make("a"), make("b")
        first = [ends[0].export(NCCL, [1], ends[1]), ends[1].export(NCCL, [2], ends[0])]
        assert ends[1].take(NCCL, ends[0], first[0], [0])
        assert ends[0].take(NCCL, ends[1], first[1], [0])
        connected(*ends)
        connected(*ends[::-1])
        assert all(len(end.device.communicators) == 2 for end in ends), "one for each direction"

    def test_messages_may_be_taken_late_in_another_order_or_never(self, make):
        source, target = make("a", slots_out=6, slots_in=6), make("b", slots_out=6, slots_in=6)
        connected(source, target)
        exported = [source.export(NCCL, [block], target) for block in range(4)]
        assert all(len(payload) == 1 for _, payload in exported)
        for number in (2, 0, 3):  # the message of 1 is lost
            assert target.take(NCCL, source, exported[number], [number])
            assert target.bytes_of(number) == source.bytes_of(number)
        assert exchange(source, target)[0]

    def test_bytes_come_in_the_message_while_all_slots_are_in_use(self, make):
        source, target = make("a", slots_out=2), make("b")
        connected(source, target)
        until(lambda: not len(source.peers.links._outgoing["b"].outbox))
        exported = [source.export(NCCL, [block], target) for block in range(5)]
        assert [len(payload) for _, payload in exported] == [1, 1, 2, 2, 2]
        assert all(target.take(NCCL, source, each, [number]) for number, each in enumerate(exported))

    def test_a_larger_message_than_a_slot_comes_with_its_bytes(self, make):
        source, target = make("a"), make("b")
        connected(source, target)
        source.peers.links._outgoing["b"].channel.slot_bytes = source.size
        assert exchange(source, target) == (True, False)

    def test_sends_that_nobody_receives_end_the_channel_and_the_next_one_works(self, make):
        source, target = make("a", settle_s=0.1), make("b")
        connected(source, target)
        source.export(NCCL, [1], target)
        until(lambda: make.world.num_aborts > 0)
        connected(source, target)
        assert len(source.device.communicators) == 2

    def test_a_receiver_that_waits_in_vain_gives_up_and_says_so(self, make):
        source, target = make("a"), make("b", receive_s=0.1)
        connected(source, target)
        exported = source.export(NCCL, [1], target)
        sends = source.device.communicators[0].meeting.sends
        until(lambda: not sends.empty())
        make.world.die(source.device)
        sends.queue.clear()
        assert not target.take(NCCL, source, exported, [0])
        until(lambda: make.world.num_aborts > 0)

    def test_a_peer_that_returns_is_another_peer(self, make):
        source, target = make("a"), make("b")
        connected(source, target)
        make.world.die(target.device)
        source.peers.forget("b")
        reborn = make("b")
        connected(source, reborn)
        until(lambda: source.device.communicators[0].is_aborted)

    def test_a_sender_that_returns_unnoticed_replaces_its_channel(self, make):
        source, target = make("a"), make("b")
        connected(source, target)
        reborn = make("a")
        connected(reborn, target)
        until(lambda: target.device.communicators[0].is_aborted)
        assert not target.device.communicators[1].is_aborted

    def test_a_ticket_of_a_channel_that_is_over_is_refused(self, make):
        source, target = make("a"), make("b", receive_s=0.1)
        connected(source, target)
        exported = source.export(NCCL, [1], target)
        target.peers.forget("a")
        assert not target.take(NCCL, source, exported, [0])

    def test_another_peer_cannot_take_a_channel(self, make):
        source, target, thief = make("a"), make("b"), make("c")
        connected(source, target)
        exported = source.export(NCCL, [1], target)
        assert not target.take(NCCL, thief, exported, [0])

    def test_connecting_that_never_ends_is_given_up_and_tried_again_later(self, make):
        source, target = make("a", connect_s=0.05, retry_s=0.2), make("b", connect_s=0.05)
        _, payload = source.export(NCCL, [1], target)
        assert len(payload) == 2  # the message is lost: the receiver never joins
        until(lambda: make.world.num_aborts == 1)
        assert source.export(NCCL, [1], target)[1][0] == b"", "not proposed again at once"
        assert exchange(source, target) == (True, False)
        until(lambda: source.export(NCCL, [1], target)[1][0] != b"")

    def test_a_gpu_that_makes_no_unique_ids_sends_bytes(self, make):
        source, target = make("a"), make("b")
        make.world.refuses_ids = True
        assert exchange(source, target) == (True, False)

    def test_more_peers_than_channels_take_turns(self, make):
        source = make("a", max_channels=2)
        targets = [make(f"target-{number}") for number in range(4)]
        for target in targets:
            connected(source, target)
        assert len(source.peers.links._outgoing) == 2
        connected(source, targets[0])
        until(lambda: make.world.num_aborts >= 3)

    def test_a_receiver_has_at_most_so_many_channels(self, make):
        target = make("target", max_channels=2)
        for number in range(4):
            connected(make(f"source-{number}"), target)
        assert len(target.peers.links._incoming) == 2

    def test_a_late_message_does_not_bring_a_channel_back(self, make):
        source, target = make("a"), make("b")
        late = source.export(NCCL, [1], target)
        connected(source, target)
        source.peers.forget("b")
        connected(source, target)
        assert target.take(NCCL, source, late, [0]), "its bytes came with it"
        assert exchange(source, target) == (True, True)
        assert len(target.device.communicators) == 2

    def test_damaged_announcements_are_refused(self, make):
        source, target = make("a"), make("b")
        connected(source, target)
        message, payload = source.export(NCCL, [1], target)
        assert not target.take(NCCL, source, (message, []), [0])
        assert not target.take(NCCL, source, (message, [b"\xc1"]), [0])
        assert not target.take(NCCL, source, (message, [payload[0], b"surplus"]), [0, 1]), "another size is announced"

    @pytest.mark.parametrize("seed", range(6))
    def test_whatever_is_lost_or_late_what_is_taken_is_right(self, make, seed):
        """Who is forgotten while a channel connects does not learn of it: the channel is late then, and made anew."""
        dice = np.random.default_rng(seed)
        make.world.late_s = 0.05
        ends = [make(name, settle_s=0.3, receive_s=0.3, connect_s=1.0) for name in "ab"]
        waiting = []
        for _ in range(60):
            source, target = ends if dice.random() < 0.5 else ends[::-1]
            if dice.random() < 0.6:
                blocks = dice.choice(len(source.memory), 2, replace=False).tolist()
                content = [source.bytes_of(block) for block in blocks]
                waiting.append((source, target, source.export(NCCL, blocks, target), content))
            elif waiting:
                source, target, exported, content = waiting.pop(int(dice.integers(len(waiting))))
                kept = [target.bytes_of(block) for block in (0, 1)]
                if dice.random() < 0.8:
                    ok = target.take(NCCL, source, exported, [0, 1])
                    assert [target.bytes_of(block) for block in (0, 1)] == (content if ok else kept)
            if dice.random() < 0.02:
                target.peers.forget(source.name)
        until(lambda: exchange(*ends) == (True, True))
