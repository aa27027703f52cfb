"""W3C trace context: reads what a client sends of its trace, and says what ours is.

What is malformed is ignored, and a new trace begins, as the recommendation (https://www.w3.org/TR/trace-context/) says.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

SAMPLED: Final = 0x01
MAX_STATE: Final = 512  # characters of tracestate that are kept; of a longer one, nothing
MAX_MEMBERS: Final = 32  # entries of a tracestate

_PARENT: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x20-\x7e]*)?")
_KEY: Final = r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
_MEMBER: Final = re.compile(rf"({_KEY})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")


@dataclass(frozen=True, slots=True)
class ParentContext:
    """The span of a client's that a request belongs to. ``state``: its tracestate, which may be empty."""

    trace_id: int
    span_id: int
    is_sampled: bool
    state: str = ""


def parent_of(headers: Iterable[tuple[bytes, bytes]]) -> ParentContext | None:
    """Return what ``traceparent`` and ``tracestate`` of raw headers say; None without a parent that can be read."""
    parents, states = [], []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    return _parent(parents[0], states) if len(parents) == 1 else None


def _parent(value: bytes, states: list[bytes]) -> ParentContext | None:
    match = _PARENT.fullmatch(value.strip(b" \t"))
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == b"ff" or (version == b"00" and rest is not None):
        return None
    trace, span = int(trace_id, 16), int(span_id, 16)
    if not trace or not span:
        return None
    return ParentContext(trace, span, bool(int(flags, 16) & SAMPLED), _state(states))


def _state(values: list[bytes]) -> str:
    """One list of all headers of that name. Empty if any part of it is malformed."""
    if not values:
        return ""
    text = b",".join(values).decode("latin-1")
    if len(text) > MAX_STATE:
        return ""
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    keys = [match[1] for member in members if (match := _MEMBER.fullmatch(member))]
    is_right = len(keys) == len(members) <= MAX_MEMBERS and len(set(keys)) == len(keys)
    return ",".join(members) if is_right else ""


def traceparent(trace: str, span: str, is_sampled: bool) -> str:
    """Write the header of version 00. The ids of the trace and of the span have 32 and 16 digits."""
    return f"00-{trace}-{span}-01" if is_sampled else f"00-{trace}-{span}-00"
