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
        drawn = self._random.randbytes(24)  # an id of zero, which is none, is not to be feared in 64 bits
        digits = drawn.hex()
        if "traceparent" not in headers or (parent := parent_of(raw_headers)) is None:
            return CallTrace(digits[16:], digits[:16], None, self._share.has(int.from_bytes(drawn[16:])), self._finish)
        return CallTrace(f"{parent.trace_id:032x}", digits[:16], parent, parent.is_sampled, self._finish)

    def ended(self, timeline: RequestTimeline, spec: RequestSpec) -> None:
        """Reads timelines (`router.history.timelines.TimelineReaders`)."""
        if isinstance(timeline.trace, CallTrace):
            timeline.trace.ended(timeline, spec)

    def _finish(self, call: EndedCall) -> None:
        reason = kept_for(call)
        if reason is not None:
            self._keep(call, reason)
