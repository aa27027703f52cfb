"""Writes spans as OTLP has them on the wire. Only this module needs the extra ``otel``, and only when traces are on.

The messages are those of ``opentelemetry-proto``; they are made here and not by OpenTelemetry's SDK, which takes two to
three times as long for a span (docs/decisions/0035-traces-are-made-from-timelines.md).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from router.traces.span import Attributes, Span, SpanEvent, Value

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
        spans_of_resource.resource.attributes.extend(_pairs(dict(resource)))
        self._scope = spans_of_resource.scope_spans.add()
        self._scope.scope.name = SCOPE

    def add(self, trace_id: int, spans: Iterable[Span], wall_s: float) -> None:
        """Add the spans of one trace. ``wall_s``: what the time of day is ahead of the gateway's clock."""
        trace = trace_id.to_bytes(16, "big")
        self._scope.spans.extend(_span(trace, span, wall_s) for span in spans)

    def encode(self) -> bytes:
        data: bytes = self._request.SerializeToString()
        return data


def _span(trace: bytes, span: Span, wall_s: float) -> Any:
    message = trace_pb2.Span(
        trace_id=trace,
        span_id=_id(span.span_id),
        parent_span_id=_id(span.parent_id) if span.parent_id else b"",
        flags=_SAMPLED | _HAS_IS_REMOTE | (_IS_REMOTE if span.is_parent_remote else 0),
        trace_state=span.state,
        name=span.name,
        kind=int(span.kind),  # type: ignore[arg-type, unused-ignore]
        start_time_unix_nano=_nanos(span.start_s, wall_s),
        end_time_unix_nano=_nanos(span.end_s, wall_s),
        attributes=_pairs(span.attributes),
    )
    if span.events:
        message.events.extend(_event(event, wall_s) for event in span.events)
    for link in span.links:
        message.links.add(trace_id=trace, span_id=_id(link))
    if span.error:
        message.status.CopyFrom(trace_pb2.Status(code=_ERROR, message=span.error))
    return message


def _event(event: SpanEvent, wall_s: float) -> Any:
    at = _nanos(event.at_s, wall_s)
    return trace_pb2.Span.Event(time_unix_nano=at, name=event.name, attributes=_pairs(event.attributes))


def _pairs(attributes: Attributes | dict[str, str]) -> list[Any]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: Value) -> Any:
    match value:
        case str():
            return AnyValue(string_value=value)
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case _:
            return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=one) for one in value]))


def _id(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _nanos(at_s: float, wall_s: float) -> int:
    return int((at_s + wall_s) * 1e9)
