"""KV that NCCL moves between GPUs, over a double of the device."""

import time

import numpy as np
import pytest

from kvtransfer.gpu.nccl import NcclLimits
from mesh.transports import NCCL
from tests.kvtransfer.fake_device import World
from tests.kvtransfer.gpu.device_ends import End


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
