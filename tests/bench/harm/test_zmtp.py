"""Bytes of ZMTP cut into controls and messages, however the network cuts them."""

import random

import pytest

from bench.harm.zmtp import COMMAND, GREETING_BYTES, LONG, Control, Reader, encode

GREETING = bytes(range(GREETING_BYTES))
READY = bytes([COMMAND, 5]) + b"READY"
LONG_COMMAND = bytes([COMMAND | LONG]) + (300).to_bytes(8, "big") + bytes(300)
MESSAGES = [(b"one",), (b"", b"two", b"x" * 255), (b"y" * 256, b"z" * 70_000)]


def wire():
    return GREETING + READY + encode(MESSAGES[0]) + LONG_COMMAND + encode(MESSAGES[1]) + encode(MESSAGES[2])


EXPECTED = [Control(READY), MESSAGES[0], Control(LONG_COMMAND), *MESSAGES[1:]]


@pytest.mark.parametrize("seed", range(20))
def test_any_cut_gives_the_same_items(seed):
    stream, data, reader, items = random.Random(seed), wire(), Reader(), []
    while data:
        size = stream.choice((1, 2, 7, 63, 300, 5000))
        items += reader.feed(data[:size])
        data = data[size:]
    greeting = b""
    while len(greeting) < GREETING_BYTES:
        greeting += items.pop(0).data
    assert greeting == GREETING
    assert items == EXPECTED


def test_a_greeting_goes_on_as_it_comes():
    reader = Reader()
    assert list(reader.feed(GREETING[:10])) == [Control(GREETING[:10])]
    assert list(reader.feed(GREETING[10:] + READY)) == [Control(GREETING[10:]), Control(READY)]


def test_items_written_out_are_the_bytes_that_came():
    items = Reader().feed(wire())
    assert b"".join(item.data if isinstance(item, Control) else encode(item) for item in items) == wire()


def test_a_message_waits_for_its_last_frame():
    reader = Reader()
    first, second = encode((b"a", b"b"))[:3], encode((b"a", b"b"))[3:]
    assert list(reader.feed(GREETING + first)) == [Control(GREETING)]
    assert list(reader.feed(second)) == [(b"a", b"b")]
