"""Additions to the parts of an answer, whatever the API that tells them."""

from itertools import groupby
from typing import Any, TypeAlias

from msgspec import Struct


class ContentDelta(Struct, frozen=True):
    """Text that is meant for the user."""

    text: str


class ReasoningDelta(Struct, frozen=True):
    """Text of a section in which the model thinks."""

    text: str


class CallBegins(Struct, frozen=True):
    """A call of a tool begins. ``index``: 0 for the first of an answer."""

    index: int
    name: str


class CallArguments(Struct, frozen=True):
    """More of the JSON text of a call's arguments."""

    index: int
    text: str


Delta: TypeAlias = ContentDelta | ReasoningDelta | CallBegins | CallArguments


def joined(deltas: list[Delta]) -> list[Delta]:
    """Return the same with neighbours of one part made one."""
    result: list[Delta] = []
    for (kind, index), group in groupby(deltas, _part):
        first, *more = group
        if not more or isinstance(first, CallBegins):
            result += (first, *more)
        else:
            text = "".join(delta.text for delta in (first, *more) if not isinstance(delta, CallBegins))
            result.append(CallArguments(index, text) if kind is CallArguments else kind(text))
    return result


def _part(delta: Delta) -> tuple[type[Any], int]:
    return type(delta), delta.index if isinstance(delta, (CallArguments, CallBegins)) else 0
