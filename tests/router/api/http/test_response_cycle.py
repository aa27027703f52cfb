"""Heads and chunks of answers as they are written."""

import asyncio
import logging
from typing import Any

import pytest

from router.api.http.response_cycle import HeadFirstCycle


class Flow:
    write_paused = False


class Written:
    def __init__(self):
        self.data, self.is_closed = b"", False

    def write(self, data):
        self.data += data

    def close(self):
        self.is_closed = True


def cycle_of(method="POST", *, keep_alive=True):
    written, ended = Written(), list[bool]()
    parts: dict[str, Any] = {
        "scope": {"method": method},
        "transport": written,
        "flow": Flow(),
        "logger": logging.getLogger(),
        "access_logger": logging.getLogger(),
        "access_log": False,
        "default_headers": [(b"date", b"today")],
        "message_event": asyncio.Event(),
        "expect_100_continue": False,
        "keep_alive": keep_alive,
        "on_response": lambda: ended.append(True),
    }
    return HeadFirstCycle(**parts), written, ended


def start(*headers, status=200):
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data, *, more=False):
    return {"type": "http.response.body", "body": data, "more_body": more}


async def test_an_answer_of_unknown_length_is_written_in_chunks():
    cycle, written, ended = cycle_of()
    for message in (start((b"X-A", b"b")), body(b"one", more=True), body(b"", more=True), body(b"two")):
        await cycle.send(message)
    head, _, rest = written.data.partition(b"\r\n\r\n")
    assert head == b"HTTP/1.1 200 OK\r\ndate: today\r\nx-a: b\r\ntransfer-encoding: chunked"
    assert rest == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    assert ended == [True]
    assert not written.is_closed


async def test_an_answer_with_its_length_is_written_as_it_is():
    cycle, written, ended = cycle_of(keep_alive=False)
    await cycle.send(start((b"content-length", b"3")))
    await cycle.send(body(b"one"))
    head = b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 3\r\nconnection: close\r\n\r\n"
    assert written.data == head + b"one"
    assert ended
    assert written.is_closed


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_an_answer_without_a_body_names_no_coding(method, status):
    cycle, written, ended = cycle_of(method)
    await cycle.send(start(status=status))
    await cycle.send(body(b"left out" if method == "HEAD" else b""))
    assert b"transfer-encoding" not in written.data
    assert written.data.endswith(b"date: today\r\n\r\n")
    assert ended


async def test_an_answer_may_close_its_connection():
    cycle, written, _ = cycle_of()
    await cycle.send(start((b"connection", b"x, Close")))
    await cycle.send(body(b"end"))
    assert written.data.count(b"connection:") == 1
    assert written.is_closed


@pytest.mark.parametrize("header", [(b"a b", b"c"), (b"a", b"b\r\nc: d"), (b"a\r\nb", b"c")])
async def test_headers_that_http_does_not_allow_are_refused(header):
    cycle, written, _ = cycle_of()
    with pytest.raises(RuntimeError, match="does not allow"):
        await cycle.send(start(header))
    assert written.data == b""


async def test_messages_out_of_turn_are_refused():
    cycle, _, _ = cycle_of()
    with pytest.raises(RuntimeError, match="before the head"):
        await cycle.send(body(b"early"))
    await cycle.send(start())
    await cycle.send(body(b"end"))
    with pytest.raises(RuntimeError, match="out of turn"):
        await cycle.send(body(b"late"))


async def test_a_client_that_left_is_written_nothing():
    cycle, written, _ = cycle_of()
    cycle.disconnected = True
    await cycle.send(start())
    assert written.data == b""
