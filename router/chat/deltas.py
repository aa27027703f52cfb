"""Additions to the parts of an answer, whatever the API that tells them."""

from typing import TypeAlias

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
    for delta in deltas:
        last = result[-1] if result else None
        match last, delta:
            case ContentDelta(before), ContentDelta(text):
                result[-1] = ContentDelta(before + text)
            case ReasoningDelta(before), ReasoningDelta(text):
                result[-1] = ReasoningDelta(before + text)
            case CallArguments(index, before), CallArguments(other, text) if index == other:
                result[-1] = CallArguments(index, before + text)
            case _:
                result.append(delta)
    return result
