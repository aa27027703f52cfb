"""Events are found wherever a stream is cut, and none may grow beyond a bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.servers.stream.sse import MAX_EVENT, BadStreamError, EventReader, data_of

EVENTS = [b'data: {"a": 1}', b": comment", b"event: x\ndata: one\ndata: two", b"data:[DONE]"]


def read(stream, cuts):
    reader, found, begin = EventReader(), [], 0
    for end in [*sorted(cuts), len(stream)]:
        found += reader.feed(stream[begin:end])
        begin = end
    return found + reader.end()


@given(st.sets(st.integers(0, 90)), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.booleans())
def test_events_are_the_same_wherever_a_stream_is_cut(cuts, line_end, has_end):
    stream = b"\n\n".join(EVENTS) + b"\n\n" * has_end
    assert read(stream.replace(b"\n", line_end), cuts) == EVENTS


def test_what_an_event_carries():
    assert [data_of(event) for event in EVENTS] == [b'{"a": 1}', b"", b"one\ntwo", b"[DONE]"]


def test_an_event_has_a_bound():
    reader = EventReader()
    reader.feed(b"data: " + b"x" * (MAX_EVENT // 2))
    with pytest.raises(BadStreamError, match="more than"):
        reader.feed(b"x" * (MAX_EVENT // 2))
