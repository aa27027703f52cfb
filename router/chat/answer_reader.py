"""Takes an answer apart while it comes: reasoning, text, and calls of tools."""

from collections.abc import Generator, Sequence
from enum import Enum, auto
from typing import Final

from router.chat.calls.call_format import CallFormat
from router.chat.calls.json_machine import BLANKS, MalformedCallError
from router.chat.deltas import CallArguments, CallBegins, ContentDelta, Delta, ReasoningDelta, joined
from router.chat.reasoning import ReasoningFormat

MAX_HELD: Final = 65_536  # characters of what may be a call and has no name yet


class _Part(Enum):
    START = auto()  # reasoning may begin
    REASONING = auto()
    OPENING = auto()  # nothing but blanks has come of the text
    TEXT = auto()
    CALLS = auto()


class AnswerReader:
    """Reads one answer. What it finds depends on the text alone, not on the pieces in which it comes.

    A call that is malformed before it has a name is text; one that is malformed later ends there.
    """

    def __init__(
        self, reasoning: ReasoningFormat | None, calls: CallFormat | None, *, begins_in_reasoning: bool = False
    ) -> None:
        """Make a reader. ``calls`` is None if the answer may call nothing. ``begins_in_reasoning``: the prompt has
        opened a section of reasoning.
        """
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
        self._says_something = False
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
            self._give_up(self._section)
        elif self._part is _Part.REASONING:
            self._reason(held.rstrip(BLANKS) if self._reasoning else held)
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
        if stripped.startswith(begin):
            self._part, self._drops_blanks = _Part.REASONING, True
            return stripped[len(begin) :]
        if begin.startswith(stripped):
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
        self._reason(text[:at].rstrip(BLANKS))
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
            if not stripped:
                self._held = text
                return ""
            if stripped[0] in self._calls.openings:
                self._begin_section("")
                return stripped
            self._part = _Part.TEXT
        at, trigger = _first(text, self._triggers)
        if trigger:
            self._say(text[:at].rstrip(BLANKS))
            self._begin_section(trigger)
            return text[at + len(trigger) :]
        self._held = text[_end_of_known(text, self._triggers) :]
        self._say(text[: len(text) - len(self._held)])
        return ""

    # --- calls --------------------------------------------------------------------------------------------------------

    def _begin_section(self, trigger: str) -> None:
        assert self._calls is not None
        self._section, self._part = _Section(trigger, self, self._calls), _Part.CALLS

    def _call(self, text: str) -> str:
        section = self._section
        assert section is not None
        for at, character in enumerate(text):
            try:
                section.send(character)
            except StopIteration as end:
                return self._end_section(end.value + text[at + 1 :])
            except MalformedCallError:
                self._give_up(section)
                return text[at + 1 :]
        return ""

    def _end_section(self, rest: str) -> str:
        """Blanks between calls, and after them, are no text."""
        self._section, self._part, self._drops_blanks = None, _Part.TEXT, True
        return rest

    def _give_up(self, section: "_Section") -> None:
        self._end_section("")
        self._drops_blanks = False
        self._say(section.unnamed)

    def begin_call(self, name: str) -> None:
        self._deltas.append(CallBegins(self.num_calls, name))
        self.num_calls += 1

    def add_arguments(self, text: str) -> None:
        self._deltas.append(CallArguments(self.num_calls - 1, text))

    # --- text ---------------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        if text:
            self._says_something = True
            self._deltas.append(ContentDelta(text))

    def _reason(self, text: str) -> None:
        if text:
            self._deltas.append(ReasoningDelta(text))


class _Section:
    """One section with calls. ``unnamed``: its text, as long as no call of it has a name."""

    def __init__(self, trigger: str, reader: AnswerReader, calls: CallFormat) -> None:
        self.unnamed = trigger
        self._reader = reader
        self._has_name = False
        self._machine: Generator[None, str, str] = calls.read(self)
        next(self._machine)

    def send(self, character: str) -> None:
        """Raise `StopIteration` with what does not belong to the section, or `MalformedCallError`."""
        if not self._has_name:
            self.unnamed += character
            if len(self.unnamed) > MAX_HELD:
                raise MalformedCallError("a call without a name is too long")
        self._machine.send(character)

    def begin(self, name: str) -> None:
        self._has_name, self.unnamed = True, ""
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
            return len(text[:at].rstrip(BLANKS))
    return len(text.rstrip(BLANKS))
