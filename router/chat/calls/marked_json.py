"""Calls as JSON between two markers: Hermes, Qwen, SmolLM3, Phi-4 and others."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from router.chat.calls.call_format import Call, CallGrammar, CallSink
from router.chat.calls.json_machine import Machine, expect, read_call, skip_blanks
from router.chat.calls.typed_values import json_text
from router.chat.tools import Tool, ToolUse


@dataclass(frozen=True, slots=True)
class MarkedJson:
    """``begin{"name": ..., "arguments": {...}}end``, or a list of such objects where ``is_list``."""

    name: str
    begin: str
    end: str
    is_list: bool = False
    blank: str = "\n"  # beside the markers
    arguments: str = "arguments"
    openings: str = ""
    call_id_length: int = 24

    @property
    def triggers(self) -> Sequence[str]:
        return (self.begin,)

    @property
    def markers(self) -> Sequence[str]:
        return (self.begin, self.end) if self.end else (self.begin,)

    @property
    def shares_section(self) -> bool:
        return self.is_list

    def read(self, calls: CallSink, tools: Sequence[Tool]) -> Machine[str]:
        """Models that write one object may write a list of them, and the other way round."""
        character = yield from skip_blanks()
        if character == "[":
            yield from read_list(calls)
        else:
            expect(character, "{")
            yield from read_call(calls.begin, calls.add)
        yield from pass_marker(self.end)
        return ""

    def write(self, calls: Sequence[Call]) -> str:
        written = [json_text({"name": name, self.arguments: arguments}) for name, arguments in calls]
        if self.is_list:
            return f"{self.begin}{self.blank}[{', '.join(written)}]{self.blank}{self.end}"
        return "\n".join(f"{self.begin}{self.blank}{call}{self.blank}{self.end}" for call in written)

    def section(self, use: ToolUse, grammar: CallGrammar) -> str:
        call = grammar.rule(" | ".join(json_call(tool, self.arguments, grammar) for tool in use.tools))
        calls = call
        if self.is_list:
            more = f' (", " {call})*' if use.is_parallel else ""
            calls = f'"[" {call}{more} "]"'
        return f"{grammar.literal(self.blank)} {calls} {grammar.literal(self.blank + self.end)}".strip()


def json_call(tool: Tool, arguments: str, grammar: CallGrammar) -> str:
    """Return the terms for the call of one tool as a JSON object."""
    head = json.dumps(f'{{"name": {json.dumps(tool.name)}, "{arguments}": ')
    return f'{head} {grammar.schema(tool.schema)} "}}"'


def read_list(calls: CallSink) -> Machine[None]:
    """Read a list of call objects whose bracket was read."""
    character = yield from skip_blanks()
    while character != "]":
        expect(character, "{")
        yield from read_call(calls.begin, calls.add)
        character = yield from skip_blanks()
        if character == ",":
            character = yield from skip_blanks()


def pass_marker(marker: str) -> Machine[None]:
    """Read a marker, with blanks before it. Without a marker nothing is read."""
    if not marker:
        return
    expect((yield from skip_blanks()), marker[0])
    for wanted in marker[1:]:
        expect((yield), wanted)
