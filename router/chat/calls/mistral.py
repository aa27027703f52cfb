"""Calls as Mistral's models write them: a list after one token, or, in newer ones, name and arguments apart."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from router.chat.calls.call_format import Call, CallGrammar, CallSink
from router.chat.calls.json_machine import BLANKS, Machine, MalformedCallError, pass_object, skip_blanks
from router.chat.calls.marked_json import json_call, read_list
from router.chat.calls.typed_values import json_text
from router.chat.tools import Tool, ToolUse

TOOL_CALLS = "[TOOL_CALLS]"
ARGS = "[ARGS]"
CALL_ID = "[CALL_ID]"
_MAX_NAME = 256  # characters, with an id that may stand between name and arguments


@dataclass(frozen=True, slots=True)
class Mistral:
    """``[TOOL_CALLS][{"name": ..., "arguments": {...}}]``; where names are apart, ``[TOOL_CALLS]name[ARGS]{...}``."""

    name: str = "mistral"
    has_names_apart: bool = False
    openings: str = ""
    triggers: Sequence[str] = (TOOL_CALLS,)
    markers: Sequence[str] = (TOOL_CALLS, ARGS, CALL_ID)
    call_id_length: int = 9

    @property
    def shares_section(self) -> bool:
        return not self.has_names_apart

    def read(self, calls: CallSink, tools: Sequence[Tool]) -> Machine[str]:
        character = yield from skip_blanks()
        if character == "[":
            yield from read_list(calls)
            return ""
        head = ""
        while character != "{":
            head += character
            if len(head) > _MAX_NAME:
                raise MalformedCallError("a name is too long")
            character = yield
        calls.begin(_name(head))
        yield from pass_object(calls.add)
        return ""

    def write(self, calls: Sequence[Call]) -> str:
        if self.has_names_apart:
            return "".join(f"{TOOL_CALLS}{name}{ARGS}{json_text(arguments)}" for name, arguments in calls)
        written = [{"name": name, "arguments": arguments} for name, arguments in calls]
        return f"{TOOL_CALLS}{json_text(written)}"

    def section(self, use: ToolUse, grammar: CallGrammar) -> str:
        if self.has_names_apart:
            calls = [
                f"{json.dumps(tool.name)} {grammar.literal(ARGS)} {grammar.schema(tool.schema)}" for tool in use.tools
            ]
            return grammar.rule(" | ".join(calls))
        call = grammar.rule(" | ".join(json_call(tool, "arguments", grammar) for tool in use.tools))
        more = f' (", " {call})*' if use.is_parallel else ""
        return f'" "? "[" {call}{more} "]"'


def _name(head: str) -> str:
    name = head.partition(ARGS)[0].partition(CALL_ID)[0].strip(BLANKS)
    if not name:
        raise MalformedCallError("a call without a name")
    return name
