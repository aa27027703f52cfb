"""Bytes of a terminal."""

import pytest

from router.cli.top.keys import Keys


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"jq", ["j", "q"]),
        (b"\x1b[A\x1bOB\x1b[5~\x1b[6~", ["up", "down", "page-up", "page-down"]),
        (b"\x1b[Z\t\r\n \x7f", ["back-tab", "tab", "enter", "enter", "space", "backspace"]),
        (b"\x1b[1;5Ax", ["up", "x"]),
        (b"\x1b[200~x", ["x"]),
        (b"\x1b3", ["esc", "3"]),
        ("é\x00\x01".encode(), ["é"]),
        (b"\xff", ["\ufffd"]),
    ],
)
def test_keys_have_names(data, keys):
    assert Keys().feed(data) == keys


def test_sequences_may_come_in_pieces():
    keys = Keys()
    assert [keys.feed(bytes([one])) for one in b"\x1b[A"] == [[], [], ["up"]]
    assert not keys.is_open


def test_a_lone_escape_is_the_key():
    keys = Keys()
    assert keys.feed(b"\x1b") == []
    assert keys.is_open
    assert keys.flush() == ["esc"]
    assert keys.feed(b"\x1b\x1b") == ["esc"] or keys.is_open


def test_a_sequence_without_end_is_given_up():
    keys = Keys()
    keys.feed(b"\x1b[" + b"0" * 100)
    assert keys.feed(b"q") == ["q"]
