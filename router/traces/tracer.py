"""Begins the traces of a gateway's calls, and keeps those that are worth it when they end."""

from collections.abc import Callable, Iterable, Mapping
from random import Random

from mesh.wire.requests import RequestSpec
from router.history.timeline import RequestTimeline
from router.traces.call_trace import CallTrace, EndedCall
from router.traces.context import parent_of
from router.traces.sampling import KeptFor, TraceShare, kept_for


class Tracer:
    """Gives each call a trace. ``share``: of calls without a parent that are kept however they end."""

    def __init__(self, share: float, random: Random, keep: Callable[[EndedCall, KeptFor], None]) -> None:
        self._share = TraceShare(share)
        self._random = random
        self._keep = keep

    def begin(self, headers: Mapping[str, str], raw_headers: Iterable[tuple[bytes, bytes]]) -> CallTrace:
        """A call came with these headers: by their names, and as they were sent."""
        parent = parent_of(raw_headers) if "traceparent" in headers else None
        trace_id = (self._random.getrandbits(128) or 1) if parent is None else parent.trace_id
        span_id = self._random.getrandbits(64) or 1
        in_share = self._share.has(trace_id, parent)
        return CallTrace(trace_id, span_id, parent, is_in_share=in_share, finish=self._finish)

    def ended(self, timeline: RequestTimeline, spec: RequestSpec) -> None:
        """Reads timelines (`router.history.timelines.TimelineReaders`)."""
        if isinstance(timeline.trace, CallTrace):
            timeline.trace.ended(timeline, spec)

    def _finish(self, call: EndedCall) -> None:
        reason = kept_for(call)
        if reason is not None:
            self._keep(call, reason)
