"""Reads text with tags, character by character."""

from collections.abc import Sequence
from typing import Final

from router.chat.calls.json_machine import Machine, MalformedCallError, skip_blanks

MAX_NAME: Final = 256  # characters of a name, with what stands beside it


def read_until(end: str, first: str = "") -> Machine[str]:
    """Return the text before an end, which is read, too. ``first``: what was read of it."""
    text = first
    while not text.endswith(end):
        if len(text) > MAX_NAME:
            raise MalformedCallError("a name is too long")
        text += yield
    return text[: len(text) - len(end)]


def one_of(tags: Sequence[str]) -> Machine[str]:
    """Read one of some tags, with blanks before it, and return it. None of them begins another."""
    text = yield from skip_blanks()
    while text not in tags:
        if not any(tag.startswith(text) for tag in tags):
            raise MalformedCallError(f"{text!r} where {' or '.join(tags)} was to come")
        text += yield
    return text
