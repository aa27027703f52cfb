"""A span as data: what OpenTelemetry calls one, without its library."""

from dataclasses import dataclass, field
from enum import IntEnum

Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]


class SpanKind(IntEnum):
    """The kinds that are used, by their numbers on the wire."""

    INTERNAL = 1
    SERVER = 2


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """A moment within a span. ``at_s`` is on the gateway's clock."""

    name: str
    at_s: float
    attributes: Attributes


@dataclass(slots=True)
class Span:
    """A part of a request's life, from ``start_s`` to ``end_s`` of the gateway's clock.

    ``parent_id`` is 0 for a trace's first span. ``links`` are ids of other spans of the trace that it follows from.
    ``error`` is empty unless it failed.
    """

    name: str
    span_id: int
    parent_id: int
    start_s: float
    end_s: float
    attributes: Attributes = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    links: tuple[int, ...] = ()
    error: str = ""
    kind: SpanKind = SpanKind.INTERNAL
    state: str = ""  # the tracestate that it continues
    is_parent_remote: bool = False
