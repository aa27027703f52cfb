"""NIXL itself over TCP, where a sender that is stopped writes what it was asked for when it goes on."""

import os
import signal
import time

import pytest

from tests.kvtransfer.test_transports import Peer, Receiver, content

pytest.importorskip("nixl", reason="the package nixl is not installed")


def test_what_a_stopped_sender_sends_late_reaches_no_block(shape, monkeypatch):
    monkeypatch.setenv("UCX_TLS", "tcp")
    peer, receiver = Peer("nixl", False, shape), Receiver("nixl", shape)
    links = receiver.peers.nixl
    message, payload = peer.export([1])
    assert receiver.take(peer, message, payload, [0])
    receiver.memory.array[:] = 9
    os.kill(peer.process.pid, signal.SIGSTOP)
    assert not receiver.take(peer, message, payload, [3])
    assert [slot.late is not None for slot in links._slots] == [True]
    os.kill(peer.process.pid, signal.SIGCONT)
    ends = time.monotonic() + 60
    while not receiver.take(peer, message, payload, [4]):
        assert time.monotonic() < ends, "it never comes"
        time.sleep(0.01)
    assert (receiver.memory[3] == 9).all()
    assert (receiver.memory[4] == content(receiver.memory)[1, 0]).all()
    assert {slot.late for slot in links._slots} == {None}
    peer.close()
    receiver.memory.close()
