"""Matching of sends and receives on a channel without tags."""

import random
import sys
import threading

import pytest

from kvtransfer.gpu.tickets import REMEMBERED, GapError, Inbox, Outbox
from tests.seeds import each_seed


def test_a_receiver_takes_what_it_wants_in_any_order():
    outbox, inbox = Outbox(4), Inbox(4)
    for size in (10, 20, 30):
        outbox.add(size, deadline=9.0)
    assert inbox.missing(2, outbox.recent()) == [(0, 10), (1, 20), (2, 30)]
    slots = [inbox.receive(ticket) for ticket in range(3)]
    assert len(set(slots)) == 3
    assert inbox.missing(0, outbox.recent()) == []
    assert [inbox.take(ticket) for ticket in (1, 0, 2, 1)] == [slots[1], slots[0], slots[2], None]


def test_what_was_kept_for_longest_makes_room():
    inbox = Inbox(2)
    for ticket in range(3):
        inbox.receive(ticket)
    assert inbox.take(0) is None
    assert {inbox.take(1), inbox.take(2)} == {0, 1}


def test_a_send_of_unknown_size_is_a_gap():
    inbox = Inbox(2)
    with pytest.raises(GapError, match="sends 0 to 1"):
        inbox.missing(1, [(1, 10)])


def test_slots_are_used_until_their_send_is_read_and_sends_have_deadlines():
    outbox = Outbox(2)
    assert [outbox.add(1, 5.0), outbox.add(1, 6.0)] == [0, 1]
    assert outbox.free_slot is None
    assert not outbox.is_overdue(4.9)
    assert outbox.is_overdue(5.0)
    outbox.finish(0)
    assert not outbox.is_overdue(5.9)
    assert outbox.free_slot is not None
    assert outbox.tickets == [1]
    assert outbox.recent() == [(0, 1), (1, 1)], "a send that is finished may not have been received"


def test_deadlines_may_be_looked_at_while_another_thread_sends():
    outbox, ends = Outbox(4), threading.Event()

    def send():
        while not ends.is_set():
            for ticket in [outbox.add(1, 10.0) for _ in range(4)]:
                outbox.finish(ticket)

    sender = threading.Thread(target=send)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    sender.start()
    try:
        assert not any(outbox.is_overdue(0.0) for _ in range(20_000))
    finally:
        ends.set()
        sender.join()
        sys.setswitchinterval(interval_s)


@each_seed(range(200))
def test_messages_that_are_lost_or_come_late_never_mismatch(seed):
    """The wire delivers sizes in order; the receiver's calls must name just these."""
    dice = random.Random(seed)
    outbox, inbox, wire, messages = Outbox(4), Inbox(3), [], []
    received = 0
    for _ in range(300):
        if dice.random() < 0.5 and outbox.free_slot is not None and len(wire) - received < REMEMBERED:
            size = dice.randrange(1, 100)
            ticket = outbox.add(size, 0.0)
            wire.append(size)
            outbox.finish(ticket)  # as early as can be
            if dice.random() < 0.8:
                messages.insert(dice.randrange(len(messages) + 1), (ticket, outbox.recent()))
        elif messages:
            ticket, recent = messages.pop(0)
            for number, size in inbox.missing(ticket, recent):
                assert (number, size) == (received, wire[received])
                slot = inbox.receive(number)
                assert 0 <= slot < 3
                received += 1
            slot = inbox.take(ticket)
            if slot is not None:
                inbox.give_back(slot)
            assert received > ticket
