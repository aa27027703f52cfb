"""Calls with names before their JSON, between marks, in a section of their own: DeepSeek, Kimi, Functionary."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from router.chat.calls.call_format import Call, CallGrammar, CallSink
from router.chat.calls.json_machine import BLANKS, Machine, MalformedCallError, pass_object, skip_blanks
from router.chat.calls.tags import MAX_NAME, one_of, read_until
from router.chat.calls.typed_values import json_text
from router.chat.tools import Tool, ToolUse

_FENCE: Final = "```"


@dataclass(frozen=True, slots=True)
class Sectioned:
    """``begin (call_begin NAME between {...} call_end)... end``. Without ``begin``, each call stands by itself.

    ``prefix`` and ``has_number``: names are written as ``functions.NAME:0``. ``is_fenced``: a call is
    ``call_begin function between NAME``, then its JSON in a fence of Markdown.
    """

    name: str
    begin: str
    end: str
    call_begin: str
    between: str
    call_end: str
    prefix: str = ""
    has_number: bool = False
    is_fenced: bool = False
    call_id_length: int = 24
    openings: str = ""

    @property
    def triggers(self) -> Sequence[str]:
        return (self.begin or self.call_begin,)

    @property
    def markers(self) -> Sequence[str]:
        tags = (self.begin, self.end, self.call_begin, self.between, self.call_end)
        return tuple(tag for tag in tags if tag.startswith("<") and tag.endswith(">"))

    @property
    def shares_section(self) -> bool:
        return bool(self.begin)

    def read(self, calls: CallSink, tools: Sequence[Tool]) -> Machine[str]:
        if self.begin:
            yield from one_of((self.call_begin,))
        while True:
            yield from self._read_call(calls)
            if not self.begin or (yield from one_of((self.call_begin, self.end))) == self.end:
                return ""

    def _read_call(self, calls: CallSink) -> Machine[None]:
        """Newer models leave out ``function`` and the fence, so both forms are read."""
        head = yield from read_until(self.between)
        character = yield from skip_blanks()
        if character != "{":
            rest = yield from read_until("{", character)
            head = rest.partition(_FENCE)[0]
        calls.begin(self._name(head))
        yield from pass_object(calls.add)
        after = yield from read_until(self.call_end)
        if after.strip(BLANKS + "`"):
            raise MalformedCallError(f"{after[:80]!r} after a call")

    def _name(self, head: str) -> str:
        name = head.strip(BLANKS).removeprefix(self.prefix)
        name = name.rpartition(":")[0] or name if self.has_number else name
        if not name or len(name) > MAX_NAME:
            raise MalformedCallError("a call without a name")
        return name

    def write(self, calls: Sequence[Call]) -> str:
        written = [
            self._written(f"{name}:{number}" if self.has_number else name, json_text(arguments))
            for number, (name, arguments) in enumerate(calls)
        ]
        gap = "\n" if self.is_fenced else ""
        return f"{self.begin}{gap.join(written)}{self.end}"

    def _written(self, name: str, arguments: str) -> str:
        if self.is_fenced:
            called = f"function{self.between}{name}\n{_FENCE}json\n{arguments}\n{_FENCE}"
        else:
            called = f"{self.prefix}{name}{self.between}{arguments}"
        return f"{self.call_begin}{called}{self.call_end}"

    def section(self, use: ToolUse, grammar: CallGrammar) -> str:
        call = grammar.rule(" | ".join(self._call(tool, grammar) for tool in use.tools))
        if not self.begin:
            return call
        begin, gap = grammar.literal(self.call_begin), '"\\n" ' if self.is_fenced else ""
        more = f" ({gap}{begin} {call})*" if use.is_parallel else ""
        return f"{begin} {call}{more} {grammar.literal(self.end)}"

    def _call(self, tool: Tool, grammar: CallGrammar) -> str:
        arguments, end = grammar.schema(tool.schema), grammar.literal(self.call_end)
        if self.is_fenced:
            head = grammar.literal(f"function{self.between}{tool.name}\n{_FENCE}json\n")
            return f'{head} {arguments} "\\n{_FENCE}" {end}'
        number = ' ":" /[0-9]{1,3}/' if self.has_number else ""
        return f"{grammar.literal(self.prefix + tool.name)}{number} {grammar.literal(self.between)} {arguments} {end}"
