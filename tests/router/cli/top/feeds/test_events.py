"""Bytes of a feed, as they come."""

import pytest

from router.cli.top.feeds import events as module
from router.cli.top.feeds.events import EventError, FeedEvents
from router.feed.broadcast import KEEPALIVE
from router.feed.frames import Bye, decode, encode
from tests.router.cli.top.told import snapshot

FRAMES = [*snapshot(), Bye(1.0)]


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_frames_come_through_in_any_pieces(size):
    data = b"".join(KEEPALIVE + encode(frame) for frame in FRAMES)
    events = FeedEvents()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [decode(one) for piece in pieces for one in events.feed(piece)] == [decode(_data(one)) for one in FRAMES]


def _data(frame):
    return encode(frame).partition(b"data: ")[2].strip()


def test_an_event_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    events = FeedEvents()
    assert list(events.feed(b"x" * (1 << 20))) == []
    with pytest.raises(EventError, match="more than 1 MiB"):
        list(events.feed(b"x"))
