"""Writes spans as OTLP has them on the wire. Only this module needs the extra ``otel``, and only when traces are on.

The messages are those of ``opentelemetry-proto``. They are filled where they lie: one that is made first and added then
is copied, which takes three times as long (docs/decisions/0035-traces-are-made-from-timelines.md).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from router.traces.span import Span, Value

SCOPE: Final = "meshserve"
_HAS_IS_REMOTE: Final = 0x100  # bits of a span's flags
_IS_REMOTE: Final = 0x200
_SAMPLED: Final = 0x01
_ERROR: Final = trace_pb2.Status.STATUS_CODE_ERROR


class OtlpBatch:
    """Spans of several traces for one request to a collector. ``resource``: what says where they come from."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._request: Any = ExportTraceServiceRequest()
        spans_of_resource = self._request.resource_spans.add()
        _describe(spans_of_resource.resource, resource)
        self._scope = spans_of_resource.scope_spans.add()
        self._scope.scope.name = SCOPE

    def add(self, trace_id: int, spans: Iterable[Span], wall_s: float) -> None:
        """Add the spans of one trace. ``wall_s``: what the time of day is ahead of the gateway's clock."""
        trace = trace_id.to_bytes(16, "big")
        for span in spans:
            message = self._scope.spans.add(
                trace_id=trace,
                span_id=_id(span.span_id),
                flags=_SAMPLED | _HAS_IS_REMOTE | (_IS_REMOTE if span.is_parent_remote else 0),
                name=span.name,
                kind=span.kind,
                start_time_unix_nano=_nanos(span.start_s, wall_s),
                end_time_unix_nano=_nanos(span.end_s, wall_s),
            )
            _fill(message, trace, span, wall_s)

    def encode(self) -> bytes:
        data: bytes = self._request.SerializeToString()
        return data


def _fill(message: Any, trace: bytes, span: Span, wall_s: float) -> None:
    """What not every span has."""
    if span.parent_id:
        message.parent_span_id = _id(span.parent_id)
    if span.state:
        message.trace_state = span.state
    if span.error:
        message.status.code, message.status.message = _ERROR, span.error
    _describe(message, span.attributes)
    for event in span.events:
        _describe(message.events.add(time_unix_nano=_nanos(event.at_s, wall_s), name=event.name), event.attributes)
    for link in span.links:
        message.links.add(trace_id=trace, span_id=_id(link))


def _describe(owner: Any, attributes: Mapping[str, Value]) -> None:
    add = owner.attributes.add
    for key, value in attributes.items():
        target = add(key=key).value
        match value:
            case str():
                target.string_value = value
            case bool():
                target.bool_value = value
            case int():
                target.int_value = value
            case float():
                target.double_value = value
            case _:
                for one in value:
                    target.array_value.values.add(string_value=one)


def _id(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _nanos(at_s: float, wall_s: float) -> int:
    return int((at_s + wall_s) * 1e9)
