"""Takes an answer in channels apart while it comes (`router.chat.calls.harmony`)."""

import re
from enum import Enum, auto
from typing import Final

from router.chat.calls.harmony import CHANNEL, ENDS, FUNCTIONS, MESSAGE, START
from router.chat.calls.json_machine import BLANKS
from router.chat.deltas import CallArguments, CallBegins, ContentDelta, Delta, ReasoningDelta, joined

MAX_HEAD: Final = 1024  # characters of what may be the head of a message
_HEADS: Final = (START, CHANNEL, MESSAGE, "to=")  # what a head begins with
_BODY_ENDS: Final = (*ENDS, START)
_RECIPIENT: Final = re.compile(r"\bto=([^\s<]+)")
_CHANNEL: Final = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
_GAP: Final = "\n\n"  # between two messages of one kind


class _Part(Enum):
    HEAD = auto()
    REASONING = auto()
    TEXT = auto()
    CALL = auto()


class ChannelReader:
    """Reads one answer, as `AnswerReader` does. What it finds depends on the text alone, not on its pieces.

    Text without a head is content. Messages to tools that are not the client's are reasoning.
    """

    def __init__(self) -> None:
        self._part = _Part.HEAD
        self._held = ""  # a head that has not ended, or what may be a marker
        self._last: _Part | None = None  # of the message before
        self._has_body = False
        self._said: set[_Part] = set()
        self._deltas: list[Delta] = []
        self.num_calls = 0

    @property
    def is_reasoning(self) -> bool:
        """Say whether what came last belongs to reasoning, its markers included."""
        return (self._last if self._part is _Part.HEAD else self._part) is _Part.REASONING

    def feed(self, text: str) -> list[Delta]:
        """Return what a piece of the answer adds."""
        rest, self._held = self._held + text, ""
        while rest:
            rest = self._read_head(rest) if self._part is _Part.HEAD else self._read_body(rest)
        return self._take()

    def finish(self) -> list[Delta]:
        """Return what was held back, at the end of the answer. A head that was cut off says nothing."""
        held, self._held = self._held, ""
        if self._part is not _Part.HEAD:
            self._say(held)
            self._end_body()
        elif held and not held.lstrip(BLANKS).startswith(("<|", "to=")) and held[:2] not in (" ", " t"):
            self._begin(_Part.TEXT)
            self._say(held)
        return self._take()

    def _take(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas if len(deltas) < 2 else joined(deltas)

    # --- heads --------------------------------------------------------------------------------------------------------

    def _read_head(self, text: str) -> str:
        """Read some of a text, and return what is to be read next."""
        head, marker, body = text.partition(MESSAGE)
        if not _may_be_head(head + marker):
            self._begin(_Part.TEXT)
            return self._without_start(text)
        if not marker:
            self._held = text
            return ""
        self._begin_message(head)
        return body

    def _without_start(self, text: str) -> str:
        """What begins as a message and is none would begin another one: its mark is text."""
        before, marker, rest = text.partition(START)
        if not marker or before.strip(BLANKS):
            return text
        self._say(before + marker)
        return rest

    def _begin_message(self, head: str) -> None:
        recipient, channel = _RECIPIENT.search(head), _CHANNEL.search(head)
        if recipient is not None and recipient[1].startswith(FUNCTIONS) and recipient[1] != FUNCTIONS:
            self._begin(_Part.CALL)
            self._deltas.append(CallBegins(self.num_calls, recipient[1].removeprefix(FUNCTIONS)))
            self.num_calls += 1
        elif recipient is not None or (channel is not None and channel[1] == "analysis"):
            self._begin(_Part.REASONING)
        else:
            self._begin(_Part.TEXT)

    def _begin(self, part: _Part) -> None:
        self._part, self._has_body = part, False

    # --- bodies -------------------------------------------------------------------------------------------------------

    def _read_body(self, text: str) -> str:
        at, marker = min(
            ((at, marker) for marker in _BODY_ENDS if (at := text.find(marker)) >= 0), default=(len(text), "")
        )
        if not marker:
            self._held = text[_end_of_known(text) :]
            self._say(text[: len(text) - len(self._held)])
            return ""
        self._say(text[:at])
        self._end_body()
        return text[at:] if marker == START else text[at + len(marker) :]

    def _end_body(self) -> None:
        if self._part is _Part.CALL and not self._has_body:
            self._say("{}")
        self._last, self._part = self._part, _Part.HEAD

    def _say(self, text: str) -> None:
        if not text:
            return
        if self._part is _Part.CALL:
            self._deltas.append(CallArguments(self.num_calls - 1, text))
        else:
            gap = _GAP if not self._has_body and self._part in self._said else ""
            kind = ReasoningDelta if self._part is _Part.REASONING else ContentDelta
            self._deltas.append(kind(gap + text))
            self._said.add(self._part)
        self._has_body = True


def _may_be_head(text: str) -> bool:
    """Say whether a message may begin so. What begins with something else is text."""
    stripped = text.lstrip(BLANKS)
    begins = any(stripped.startswith(head) or head.startswith(stripped) for head in _HEADS)
    return begins and len(text) <= MAX_HEAD and not any(end in text for end in ENDS)


def _end_of_known(text: str) -> int:
    """Return how much of a text certainly belongs to no marker."""
    longest = max(map(len, _BODY_ENDS))
    for at in range(max(0, len(text) - longest + 1), len(text)):
        if any(marker.startswith(text[at:]) for marker in _BODY_ENDS):
            return at
    return len(text)
