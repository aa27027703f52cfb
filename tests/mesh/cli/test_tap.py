import msgpack
import pytest

from mesh.cli.tap import abbreviate, describe
from mesh.wire.messages import encode
from mesh.wire.requests import Delta, Epoch, StepTokens


def test_a_message_is_printed_without_its_schema():
    body = encode(StepTokens([Delta("r1", Epoch(1), 0, list(range(100)))]))
    line = describe([b"tap", b"ms1", b"decode@17", body, b"gateway"])
    assert line.startswith(
        "decode -> gateway StepTokens {deltas: [[r1, [1, 0], 0, [0, 1, 2, 3, 4, 5, 6, 7, ... 100 items]"
    )


def test_types_are_chosen():
    frames = [b"status", b"ms1", b"decode@17", msgpack.packb({"type": "EngineStatus", "seq": 1})]
    assert describe(frames, ["GatewayStatus"]) is None
    assert describe(frames, ["EngineStatus"]) == "decode -> all EngineStatus {seq: 1}"


@pytest.mark.parametrize("body", [b"\xc1", b"", b"\x92\x01"])
def test_what_is_malformed_is_said(body):
    assert describe([b"tap", b"ms1", b"a@1", body, b"b"]).startswith("a -> b malformed:")
    assert describe([b"x"]) == "? 1 frames"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1234567891, "0.123457"), (b"abc", "<3 bytes>"), (None, "None"), ({"a": [1]}, "{a: [1]}"), ("x", "x")],
)
def test_values_are_short(value, text):
    assert abbreviate(value) == text


def test_long_text_is_cut():
    assert abbreviate("y" * 500) == "y" * 120 + "... 500 characters"
