"""W3C trace context: whatever comes is read as the recommendation says, or ignored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.traces.context import MAX_STATE, ParentContext, parent_of, traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
RIGHT = f"00-{TRACE}-{SPAN}-01"


def read(parent: str, *states: str) -> ParentContext | None:
    headers = [(b"host", b"x"), (b"traceparent", parent.encode())]
    return parent_of([*headers, *((b"tracestate", state.encode()) for state in states)])


def test_what_is_right_is_taken():
    assert read(RIGHT, "rojo=1,congo=t61") == ParentContext(int(TRACE, 16), int(SPAN, 16), True, "rojo=1,congo=t61")
    assert read(f" {RIGHT}\t") == ParentContext(int(TRACE, 16), int(SPAN, 16), True)


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("02", False), ("03", True)])
def test_only_the_lowest_flag_says_that_it_is_sampled(flags: str, is_sampled: bool):
    parent = read(f"00-{TRACE}-{SPAN}-{flags}")
    assert parent is not None
    assert parent.is_sampled == is_sampled


@pytest.mark.parametrize(
    "text",
    [
        "", "x", RIGHT.upper(), RIGHT[:-1], RIGHT + "0", RIGHT + "-", RIGHT + "-x", f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-0g", f"0-{TRACE}-{SPAN}-01",
        f"01-{TRACE}-{SPAN}-01x", RIGHT.replace("-", "_"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_ignored(text: str):
    assert read(text) is None


@pytest.mark.parametrize("text", [f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-comes-later"])
def test_later_versions_are_read_as_far_as_they_are_known(text: str):
    assert read(text) is not None


def test_two_parents_are_none():
    assert parent_of([(b"traceparent", RIGHT.encode())] * 2) is None


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        (("a=1", "b=2"), "a=1,b=2"),
        ((" a=1 ,, b=2",), "a=1,b=2"),
        (("fw529a3039@dt=FfAAAf",), "fw529a3039@dt=FfAAAf"),
        (("a=1,a=2",), ""),
        (("A=1",), ""),
        (("a",), ""),
        (("a=b=c",), ""),
        (("a=\x7f",), ""),
        ((",".join(f"k{n}=1" for n in range(33)),), ""),
        (("a=" + "x" * MAX_STATE,), ""),
    ],
)
def test_a_state_is_kept_if_all_of_it_is_right(states: tuple[str, ...], kept: str):
    parent = read(RIGHT, *states)
    assert parent is not None
    assert parent.state == kept


@given(parent=st.binary(max_size=100), states=st.lists(st.binary(max_size=600), max_size=3))
def test_no_bytes_do_harm(parent: bytes, states: list[bytes]):
    found = parent_of([(b"traceparent", parent), *((b"tracestate", state) for state in states)])
    assert found is None or (found.trace_id > 0 and found.span_id > 0 and len(found.state) <= MAX_STATE)


@given(
    version=st.integers(0, 254),
    trace=st.integers(0, 2**128 - 1),
    span=st.integers(0, 2**64 - 1),
    flags=st.integers(0, 255),
)
def test_it_agrees_with_opentelemetry_s_own_reader(version: int, trace: int, span: int, flags: int):
    propagation = pytest.importorskip("opentelemetry.trace.propagation.tracecontext")
    api = pytest.importorskip("opentelemetry.trace")
    text = f"{version:02x}-{trace:032x}-{span:016x}-{flags:02x}"
    context = api.get_current_span(propagation.TraceContextTextMapPropagator().extract({"traceparent": text}))
    theirs, ours = context.get_span_context(), read(text)
    assert (ours is not None) == theirs.is_valid
    if ours is not None:
        assert (ours.trace_id, ours.span_id, ours.is_sampled) == (trace, span, theirs.trace_flags.sampled)


@given(trace=st.integers(1, 2**128 - 1), span=st.integers(1, 2**64 - 1), is_sampled=st.booleans())
def test_what_is_written_is_read(trace: int, span: int, is_sampled: bool):
    assert read(traceparent(f"{trace:032x}", f"{span:016x}", is_sampled)) == ParentContext(trace, span, is_sampled)
