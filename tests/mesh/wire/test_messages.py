"""The wire, pinned: what the plain ``msgpack`` library packs from a literal is byte for byte what the mesh sends."""

from typing import get_args

import msgpack
import pytest

from mesh.wire.frames import Sender, WireError
from mesh.wire.messages import (
    BroadcastMessage,
    Codec,
    EngineMessage,
    GatewayMessage,
    Message,
    SupervisorMessage,
    encode,
)
from mesh.wire.requests import (
    Cancel,
    Epoch,
)
from mesh.wire.transfers import (
    Taken,
)
from tests.mesh.wire.golden_orders import ORDERS
from tests.mesh.wire.golden_requests import REQUESTS
from tests.mesh.wire.golden_statuses import STATUSES

GOLDEN = [*REQUESTS, *STATUSES, *ORDERS]


def name(message):
    return type(message).__name__


@pytest.mark.parametrize(("message", "plain"), GOLDEN, ids=[name(message) for message, _ in GOLDEN])
def test_the_wire_of_each_message(message, plain):
    """Fields are in their order, and each value is in its form. Headers of maps may be longer than they need to
    be: msgspec makes those of structs with more than 15 fields that are not all there.
    """
    body = encode(message)
    assert msgpack.packb(msgpack.unpackb(body)) == msgpack.packb(plain)
    assert msgpack.unpackb(body) == plain
    assert Codec(Message).decode(body) == message


def test_every_message_is_pinned():
    assert {type(message) for message, _ in GOLDEN} == set(get_args(Message))


def test_the_bytes_themselves():
    golden = b"\x84\xa4type\xa5Taken\xa8transfer\xa2t1\xa3seq\x03\xa2ok\xc3"
    assert encode(Taken("t1", 3, True)) == golden


def test_fields_of_a_newer_version_are_ignored():
    body = msgpack.packb({"type": "Cancel", "request": "r1", "epoch": [1, 0], "since": 1})
    assert Codec(EngineMessage).decode(body) == Cancel("r1", Epoch(1))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x84\xa4type",
        msgpack.packb([1, 2]),
        msgpack.packb({}),
        msgpack.packb({"request": "r1"}),
        msgpack.packb({"type": "Explode", "request": "r1"}),
        msgpack.packb({"type": "Cancel"}),
        msgpack.packb({"type": "Cancel", "request": 1, "epoch": [1, 0]}),
        msgpack.packb({"type": "Taken", "transfer": "t", "seq": "0", "ok": True}),
        msgpack.packb({"type": "Declined", "transfer": "t", "code": "bored", "reason": ""}),
        msgpack.packb({"type": "Cancel", "request": "r1", "epoch": [1, 0]}) + b"\x00",
        msgpack.packb({"type": "Stop", "now": True}),
    ],
    ids=[
        "empty",
        "never used byte",
        "truncated",
        "not a map",
        "empty map",
        "no type",
        "unknown type",
        "missing field",
        "wrong type of a field",
        "text for a number",
        "unknown code",
        "trailing bytes",
        "a message of another socket",
    ],
)
def test_malformed_bodies_are_wire_errors(body):
    with pytest.raises(WireError, match="malformed body"):
        Codec(EngineMessage).decode(body)


@pytest.mark.parametrize("union", [EngineMessage, GatewayMessage, SupervisorMessage, BroadcastMessage])
def test_each_socket_takes_its_own_messages_only(union):
    codec = Codec(union)
    members = set(get_args(union)) or {union}
    for message, _ in GOLDEN:
        if type(message) in members:
            assert codec.decode(encode(message)) == message
        else:
            with pytest.raises(WireError):
                codec.decode(encode(message))


def test_senders_are_readable():
    assert Sender("decode-0", 17).encode() == b"decode-0@17"
    assert Sender.decode(b"supervisor-h.1_x@3") == Sender("supervisor-h.1_x", 3)
    assert Sender.decode(b"gateway~@3") == Sender("gateway~", 3)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"@1",
        b"a@",
        b"a",
        b"a@-1",
        b"~@1",
        b"a~b@1",
        b"a@1.5",
        b"\xff\xfe",
        b"a@b@3",
        b"a\n@1",
        b"a@1\n",
        b"../a@1",
        "a@\N{ARABIC-INDIC DIGIT THREE}".encode(),
        b"a@" + b"9" * 19,
        b"a@" + b"9" * 5000,
        b"a" * 5000 + b"@1",
    ],
)
def test_bad_sender_frames_are_wire_errors(frame):
    with pytest.raises(WireError, match="bad sender frame"):
        Sender.decode(frame)


def test_epochs_order_owners():
    assert Epoch(1) < Epoch(1).handed_over() < Epoch(2) == Epoch(2, 0)
