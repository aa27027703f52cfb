"""Takes an answer apart while it comes: reasoning, text, and calls of tools."""

from collections.abc import Generator, Sequence
from enum import Enum, auto
from typing import Final

from router.chat.calls.call_format import CallFormat
from router.chat.calls.json_machine import BLANKS, MalformedCallError
from router.chat.deltas import CallArguments, CallBegins, ContentDelta, Delta, ReasoningDelta, joined
from router.chat.reasoning import ReasoningFormat
from router.chat.tools import Tool

MAX_HELD: Final = 65_536  # characters of what may be a call and has no name yet
MAX_READ_AGAIN: Final = 256  # characters of what is no call that may hold one
MAX_BLANKS: Final = 1024  # blanks that are left out beside a marker; what is more is text


class _Part(Enum):
    START = auto()  # reasoning may begin
    REASONING = auto()
    OPENING = auto()  # nothing but blanks has come of the text
    TEXT = auto()
    CALLS = auto()


class AnswerReader:
    """Reads one answer. What it finds depends on the text alone, not on the pieces in which it comes.

    A call that is malformed before it has a name is text, and so is a section without calls; a call that is malformed
    later ends there.
    """

    def __init__(
        self,
        reasoning: ReasoningFormat | None,
        calls: CallFormat | None,
        tools: Sequence[Tool] = (),
        *,
        begins_in_reasoning: bool = False,
    ) -> None:
        """Make a reader. ``calls`` is None if the answer may call nothing. ``begins_in_reasoning``: the prompt has
        opened a section of reasoning.
        """
        self.tools = tools
        self._reasoning = reasoning
        self._calls = calls
        self._part = _Part.OPENING
        if reasoning is not None:
            self._part = _Part.REASONING if begins_in_reasoning else _Part.START
        self._drops_blanks = self._part is _Part.REASONING
        self._held = ""  # characters that may belong to a marker, or are blanks before one
        self._section: _Section | None = None
        self._triggers: Sequence[str] = () if calls is None else calls.triggers
        self._deltas: list[Delta] = []
        self.num_calls = 0

    @property
    def is_reasoning(self) -> bool:
        """Say whether what came last belongs to reasoning, its markers included."""
        return self._part is _Part.REASONING

    def feed(self, text: str) -> list[Delta]:
        """Return what a piece of the answer adds."""
        rest = self._held + text
        self._held = ""
        while rest:
            rest = self._step(rest)
        return self._take()

    def finish(self) -> list[Delta]:
        """Return what was held back, at the end of the answer."""
        held, self._held = self._held, ""
        if self._section is not None:
            self._say(self._give_up(self._section))
        elif self._part is _Part.REASONING:
            self._reason(held.rstrip(BLANKS))
        else:
            self._say(held)
        return self._take()

    def _take(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas if len(deltas) < 2 else joined(deltas)

    def _step(self, text: str) -> str:
        """Read some of a text, and return what is to be read next."""
        match self._part:
            case _Part.START:
                return self._start(text)
            case _Part.REASONING:
                return self._think(text)
            case _Part.CALLS:
                return self._call(text)
            case _:
                return self._read_text(text)

    def _start(self, text: str) -> str:
        """Only blanks may come before a section of reasoning."""
        assert self._reasoning is not None
        begin, stripped = self._reasoning.begin, text.lstrip(BLANKS)
        if stripped.startswith(begin) and len(text) - len(stripped) <= MAX_BLANKS:
            self._part, self._drops_blanks = _Part.REASONING, True
            return stripped[len(begin) :]
        if begin.startswith(stripped) and len(text) - len(stripped) <= MAX_BLANKS:
            self._held = text
            return ""
        self._part = _Part.OPENING
        return text

    def _think(self, text: str) -> str:
        assert self._reasoning is not None
        end = self._reasoning.end
        text = self._without_first_blanks(text)
        at = text.find(end)
        if at < 0:
            self._held = text[_end_of_known(text, (end,)) :]
            self._reason(text[: len(text) - len(self._held)])
            return ""
        self._reason(text[: _before_blanks(text, at)])
        self._part, self._drops_blanks = _Part.OPENING, True
        return text[at + len(end) :]

    def _without_first_blanks(self, text: str) -> str:
        if not self._drops_blanks:
            return text
        text = text.lstrip(BLANKS)
        self._drops_blanks = not text
        return text

    def _read_text(self, text: str) -> str:
        text = self._without_first_blanks(text)
        if self._calls is None:
            self._say(text)
            return ""
        if self._part is _Part.OPENING:
            stripped = text.lstrip(BLANKS)
            num_blanks = len(text) - len(stripped)
            if not stripped and num_blanks <= MAX_BLANKS:
                self._held = text
                return ""
            if stripped and stripped[0] in self._calls.openings and num_blanks <= MAX_BLANKS:
                self._begin_section(text[:num_blanks])
                return stripped
            self._part = _Part.TEXT
        at, trigger = _first(text, self._triggers)
        if trigger:
            end = _before_blanks(text, at)
            self._say(text[:end])
            self._begin_section(text[end : at + len(trigger)])
            return text[at + len(trigger) :]
        self._held = text[_end_of_known(text, self._triggers) :]
        self._say(text[: len(text) - len(self._held)])
        return ""

    # --- calls --------------------------------------------------------------------------------------------------------

    def _begin_section(self, head: str) -> None:
        assert self._calls is not None
        self._section, self._part = _Section(head, self, self._calls), _Part.CALLS

    def _call(self, text: str) -> str:
        section = self._section
        assert section is not None
        for at, character in enumerate(text):
            try:
                section.send(character)
            except StopIteration as end:
                rest = end.value if section.has_name else self._give_up(section)
                return self._end_section(rest, is_text=not section.has_name) + text[at + 1 :]
            except MalformedCallError:
                return self._give_up(section) + text[at + 1 :]
        return ""

    def _end_section(self, rest: str, *, is_text: bool = False) -> str:
        """Blanks between calls, and after them, are no text."""
        self._section, self._part, self._drops_blanks = None, _Part.TEXT, not is_text
        return rest

    def _give_up(self, section: "_Section") -> str:
        """What has no name is text. It may hold another trigger, so what is short is returned to be read again."""
        self._end_section("", is_text=True)
        head, rest = section.unnamed
        if len(rest) > MAX_READ_AGAIN:
            head, rest = head + rest, ""
        self._say(head)
        return rest

    def begin_call(self, name: str) -> None:
        self._deltas.append(CallBegins(self.num_calls, name))
        self.num_calls += 1

    def add_arguments(self, text: str) -> None:
        self._deltas.append(CallArguments(self.num_calls - 1, text))

    # --- text ---------------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        if text:
            self._deltas.append(ContentDelta(text))

    def _reason(self, text: str) -> None:
        if text:
            self._deltas.append(ReasoningDelta(text))


class _Section:
    """One section with calls. ``has_name``: one has a name. ``head``: its trigger, with the blanks before it."""

    def __init__(self, head: str, reader: AnswerReader, calls: CallFormat) -> None:
        self._unnamed = [head]
        self._has_trigger = bool(head.strip(BLANKS))
        self._reader = reader
        self.has_name = False
        self._machine: Generator[None, str, str] = calls.read(self, reader.tools)
        next(self._machine)

    @property
    def unnamed(self) -> tuple[str, str]:
        """Return how the section begins, and its other text, as long as no call of it has a name."""
        size = 1 if self._has_trigger else 2
        return "".join(self._unnamed[:size]), "".join(self._unnamed[size:])

    def send(self, character: str) -> None:
        """Raise `StopIteration` with what does not belong to the section, or `MalformedCallError`."""
        if not self.has_name:
            self._unnamed.append(character)
            if len(self._unnamed) > MAX_HELD:
                raise MalformedCallError("a call without a name is too long")
        self._machine.send(character)

    def begin(self, name: str) -> None:
        self.has_name, self._unnamed = True, []
        self._reader.begin_call(name)

    def add(self, text: str) -> None:
        self._reader.add_arguments(text)


def _first(text: str, markers: Sequence[str]) -> tuple[int, str]:
    """Return where the first of some markers is, and which one it is; no marker: there is none."""
    found = [(at, marker) for marker in markers if (at := text.find(marker)) >= 0]
    return min(found) if found else (len(text), "")


def _end_of_known(text: str, markers: Sequence[str]) -> int:
    """Return how much of a text certainly belongs to no marker, nor to the blanks before one."""
    longest = max(map(len, markers), default=1)
    for at in range(max(0, len(text) - longest + 1), len(text)):
        if any(marker.startswith(text[at:]) for marker in markers):
            return _before_blanks(text, at)
    return _before_blanks(text, len(text))


def _before_blanks(text: str, end: int) -> int:
    """Return where the blanks before a place begin that are left out if a marker is there."""
    start = max(0, end - MAX_BLANKS)
    return start + len(text[start:end].rstrip(BLANKS))
