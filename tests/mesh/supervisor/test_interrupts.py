"""Signals that come before an event loop hears them."""

import os
import signal
from contextlib import suppress

import pytest

from mesh.supervisor.interrupts import Interrupts


@pytest.fixture
def interrupts():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    interrupts = Interrupts()
    interrupts.listen()
    yield interrupts
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_that_comes_is_raised_and_remembered(interrupts, number):
    assert not interrupts.has_come
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    assert interrupts.has_come


def test_one_whose_exception_is_lost_is_remembered(interrupts):
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert interrupts.has_come


def test_those_that_are_held_are_remembered_and_not_raised(interrupts):
    interrupts.hold()
    os.kill(os.getpid(), signal.SIGTERM)
    assert interrupts.has_come
