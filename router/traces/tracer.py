"""Begins the traces of a gateway's calls, and keeps those that are worth it when they end."""

from collections.abc import Callable, Iterable, Mapping
from random import Random

from mesh.wire.requests import RequestSpec
from router.history.timeline import RequestTimeline
from router.traces.call_trace import CallTrace, EndedCall
from router.traces.context import parent_of, traceparent
from router.traces.sampling import KeptFor, TraceShare, kept_for


class Tracer:
    """Gives each call a trace. ``share``: of calls without a parent that are kept however they end.

    Ids have 64 random bits of the call's own, which is half of what a trace's id holds: the other half is this
    tracer's. A call's span and its trace share them, which two spans of one trace may not.
    """

    def __init__(self, share: float, random: Random, keep: Callable[[EndedCall, KeptFor], None]) -> None:
        self._bound = TraceShare(share).bound
        self._draw = random.getrandbits
        self._mine = f"00-{random.getrandbits(64) or 1:016x}"
        self._keep = keep
        self._ended = self._finish  # bound once, not for each call

    def begin(self, headers: Mapping[str, str], raw_headers: Iterable[tuple[bytes, bytes]]) -> CallTrace:
        """A call came with these headers: by their names, and as they were sent."""
        drawn = self._draw(64)
        if "traceparent" not in headers or (parent := parent_of(raw_headers)) is None:
            is_kept = drawn < self._bound
            digits = "%016x" % (drawn or 1)
            return CallTrace(f"{self._mine}{digits}-{digits}-0{is_kept:d}", None, is_kept, self._ended)
        digits = "%016x" % (drawn or 1)
        header = traceparent(f"{parent.trace_id:032x}", digits, parent.is_sampled)
        return CallTrace(header, parent, parent.is_sampled, self._ended)

    def ended(self, timeline: RequestTimeline, spec: RequestSpec) -> None:
        """Reads timelines (`router.history.timelines.TimelineReaders`)."""
        if isinstance(timeline.trace, CallTrace):
            timeline.trace.ended(timeline, spec)

    def _finish(self, trace: CallTrace) -> None:
        reason = kept_for(trace.choices, is_in_share=trace.is_in_share, has_parent=trace.parent is not None)
        if reason is not None:
            self._keep(trace.ended_call(), reason)
