"""Events come out whole, however reads cut the stream and however lines end."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bench.load.client.sse import EventSplitter

LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
DATA = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1)
NOISE = st.sampled_from(["", ": a comment", "event: message", "id: 7", "retry: 10", "dataset: no"])


def serialize(events: list[list[str]], noise: list[str], end: str, has_space: bool) -> bytes:
    lines = []
    for index, event in enumerate(events):
        lines += [line for line in noise[index : index + 1] if line]
        lines += [f"data:{' ' * has_space}{line}" for line in event]
        lines.append("")
    return "".join(line + end for line in lines).encode()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[low:high] for low, high in pairwise(bounds)]


@given(
    events=st.lists(st.lists(DATA.filter(lambda text: text[0] != " "), min_size=1, max_size=3), max_size=8),
    noise=st.lists(NOISE, max_size=8),
    end=LINE_ENDS,
    has_space=st.booleans(),
    places=st.lists(st.integers(0, 10_000), max_size=12),
)
def test_any_split_gives_the_same_events(
    events: list[list[str]], noise: list[str], end: str, has_space: bool, places: list[int]
):
    splitter = EventSplitter()
    found = [event for part in cut(serialize(events, noise, end, has_space), places) for event in splitter.feed(part)]
    found += splitter.finish()
    assert found == ["\n".join(event).encode() for event in events]


@given(
    events=st.lists(DATA.filter(lambda text: text[0] != " "), max_size=5),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_an_event_comes_with_its_last_byte(events: list[str], end: str):
    splitter = EventSplitter()
    for event in events:
        data = f"data: {event}{end}{end}".encode()
        assert splitter.feed(data[:-1]) == []
        assert splitter.feed(data[-1:]) == [event.encode()]


def test_an_event_without_an_empty_line_is_not_lost():
    splitter = EventSplitter()
    assert splitter.feed(b"data: [DONE]") == []
    assert splitter.finish() == [b"[DONE]"]
    assert splitter.finish() == []
