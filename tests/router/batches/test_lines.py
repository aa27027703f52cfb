"""Files of batches: what is a request, and what is wrong with one that is none."""

import json
from pathlib import Path

import pytest

from router.batches.lines import MAX_LINE_BYTES, check_file, raw_lines, requests_of
from router.batches.windows import window_s

GOOD = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "m"}}


def fault_of(tmp_path: Path, *texts: bytes) -> list[tuple[str, int | None]]:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"\n".join(texts))
    return [(fault.code, fault.line) for fault in check_file(path, "/v1/completions", most_lines=4)[1]]


def line(**fields: object) -> bytes:
    return json.dumps(GOOD | fields).encode()


def test_blank_lines_are_nothing_and_numbers_are_those_of_the_file(tmp_path: Path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"\n" + line() + b"\n\n" + line(custom_id="b"))
    assert check_file(path, "/v1/completions") == (2, [])
    assert [(one.number, one.custom_id) for one in requests_of(path, set())] == [(2, "a"), (4, "b")]
    assert [one.number for one in requests_of(path, {2})] == [4]


@pytest.mark.parametrize(("texts", "faults"), [
    ((b"",), [("empty_file", None)]),
    ((b"\xff\xfe",), [("invalid_json_line", 1)]),
    ((b"[" * 50_000,), [("invalid_json_line", 1)]),
    ((line(), line()), [("duplicate_custom_id", 2)]),
    ((line(method="GET"), line(custom_id=""), line(body=[])), [("invalid_json_line", number) for number in (1, 2, 3)]),
    ((line(url="/v1/files"),), [("mismatched_url", 1)]),
    ((line(body={"stream": True}),), [("invalid_value", 1)]),
    ((b" " * (MAX_LINE_BYTES + 5) + b"x", line()), [("line_too_long", 1)]),
    (tuple(line(custom_id=str(number)) for number in range(5)), [("too_many_requests", None)]),
], ids=range(9))  # fmt: skip
def test_faults(tmp_path: Path, texts: tuple[bytes, ...], faults: list[tuple[str, int | None]]):
    assert fault_of(tmp_path, *texts) == faults


def test_a_long_line_is_one_line_and_is_not_held_whole(tmp_path: Path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"x" * 1000 + b"\n" + b"y")
    assert [(number, len(text)) for number, text in raw_lines(path, most_bytes=64)] == [(1, 66), (2, 1)]


@pytest.mark.parametrize(("text", "seconds"), [("24h", 86400), ("30m", 1800), ("7d", 604800), ("1m", 60)])
def test_windows(text: str, seconds: int):
    assert window_s(text) == seconds


@pytest.mark.parametrize("text", ["", "24", "0h", "8d", "-1h", "1.5h", "h", "24h ", "٢٤h", "99999h"])
def test_what_is_no_window(text: str):
    with pytest.raises(ValueError, match="is no window"):
        window_s(text)
