"""What broke a promise is kept, and of the rest a share, or what the client says."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.generation import Fault, Overloaded, RequestFailed
from router.history.records import Outcome
from router.history.timeline import RequestTimeline
from router.history.timelines import TimelineReaders, Timelines
from router.traces.call_trace import CallTrace, EndedCall
from router.traces.sampling import KeptFor, TraceShare, kept_for
from router.traces.tracer import Tracer
from tests.router.traces.worlds import FACTS, call_of, spec_of


def ended(outcome: Outcome = Outcome.FINISHED, *, ttft_s: float | None = 0.5, tpot_s: float = 0.05) -> RequestTimeline:
    """It was promised 1 s and 0.1 s."""
    timelines = Timelines()
    timeline = timelines.arrived(spec_of(), 0.0)
    now = 2.0 if ttft_s is None else ttft_s
    if ttft_s is not None:
        timeline.delivered.first_at, timeline.delivered.last_at, timeline.delivered.num_tokens = now, now + tpot_s, 2
        now += tpot_s
    timelines.left(timeline, outcome, "why", now)
    return timeline


def reason_of(*timelines: RequestTimeline, is_in_share: bool = False, has_parent: bool = False) -> KeptFor | None:
    return kept_for(call_of(*timelines).choices, is_in_share=is_in_share, has_parent=has_parent)


@pytest.mark.parametrize(
    ("timeline", "reason"),
    [
        (ended(), None),
        (ended(ttft_s=1.5), KeptFor.LATE),
        (ended(tpot_s=0.2), KeptFor.LATE),
        (ended(Outcome.FAILED), KeptFor.FAILED),
        (ended(Outcome.REJECTED), KeptFor.REJECTED),
        (ended(Outcome.CANCELLED), None),
        (ended(Outcome.CANCELLED, ttft_s=None), KeptFor.LATE),
    ],
)
def test_what_broke_a_promise_is_kept(timeline: RequestTimeline, reason: KeptFor | None):
    assert reason_of(timeline) == reason
    assert reason_of(timeline, has_parent=True) == reason
    assert reason_of(ended(), timeline) == reason, "one choice is enough"


def test_the_rest_is_kept_as_the_client_says_or_by_its_share():
    assert reason_of(ended(), is_in_share=True) is KeptFor.SHARE
    assert reason_of(ended(), is_in_share=True, has_parent=True) is KeptFor.PARENT


@given(trace=st.integers(1, 2**128 - 1), share=st.floats(0.0, 1.0))
def test_the_share_is_that_of_opentelemetry_s_sampler(trace: int, share: float):
    sampling = pytest.importorskip("opentelemetry.sdk.trace.sampling")
    bound = sampling.TraceIdRatioBased(share).bound
    assert TraceShare(share).has(trace) == (trace & (2**64 - 1) < bound)


class Kept:
    def __init__(self, share: float = 0.0) -> None:
        self.calls: list[EndedCall] = []
        self.tracer = Tracer(share, Random(0), lambda call, _: self.calls.append(call))
        self.timelines = Timelines(TimelineReaders(ended=(self.tracer.ended,)))

    def begin(self, parent: str = "") -> CallTrace:
        headers = {"traceparent": parent} if parent else {}
        trace = self.tracer.begin(headers, [(k.encode(), v.encode()) for k, v in headers.items()])
        trace.describe = lambda: FACTS
        return trace


def test_a_call_is_over_when_it_is_closed_and_all_its_choices_have_ended():
    kept = Kept(share=1.0)
    trace = kept.begin()
    first = kept.timelines.arrived(spec_of("a"), 0.0, trace=trace)
    kept.timelines.left(first, Outcome.FINISHED, "stop", 1.0)
    second = kept.timelines.arrived(spec_of("b"), 1.0, trace=trace)
    trace.close()
    assert not kept.calls
    kept.timelines.failed(second, RequestFailed("no", Fault.SERVER), 2.0)
    ((call),) = kept.calls
    assert [choice.timeline for choice in call.choices] == [first, second]
    assert (first.trace_id, call.trace_id) == (trace.name, int(trace.name, 16))


def test_a_call_that_is_refused_before_it_is_closed_is_over_then():
    kept = Kept()
    trace = kept.begin()
    timeline = kept.timelines.arrived(spec_of(), 0.0, trace=trace)
    kept.timelines.failed(timeline, Overloaded("full", 1.0), 0.0)
    assert not kept.calls
    trace.close()
    assert len(kept.calls) == 1


def test_a_trace_goes_on_with_its_parent_s():
    kept = Kept()
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    trace, other = kept.begin(parent), kept.begin("nonsense")
    assert trace.name == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert trace.header == f"00-{trace.name}-{trace.span_name}-01"
    assert (other.parent, other.header[-2:]) == (None, "00")
    assert int(other.name, 16)


@pytest.mark.parametrize(("flags", "is_kept"), [("00", False), ("01", True)])
def test_whether_a_parent_is_sampled_goes_before_the_share(flags: str, is_kept: bool):
    kept = Kept(share=0.0 if is_kept else 1.0)
    trace = kept.begin(f"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}")
    timeline = kept.timelines.arrived(spec_of(), 0.0, trace=trace)
    kept.timelines.left(timeline, Outcome.FINISHED, "stop", 0.1)
    trace.close()
    assert (len(kept.calls) == 1) == is_kept
